// Package alarm rings for a key when its deadline comes: of an operation, a schedule, a file of lanes/. It knows
// what time it is and how long the daemon has run, and nothing of what the keys mean.
package alarm

import (
	"container/heap"
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs/notify"
)

// Alarms calls onExpire for each key when its deadline expires. One timer serves all keys. Nothing
// is scanned; setting an alarm takes time logarithmic in the number of alarms.
//
// There are two clocks. The machine's clock gives the time of day; a person may set it ahead or
// back. The other clock is how long the daemon has run; waits and limits use it, so that setting
// the machine's clock neither ends work nor delays it. An alarm may have a deadline by each clock
// and expires with the first.
//
// An alarm expires once and carries no reason: the callee compares the deadlines again and sets the
// next alarm.
type Alarms[K comparable] struct {
	onExpire func(K)              // called by Serve, without the lock
	now      func() time.Time     // the machine's clock
	uptime   func() time.Duration // how long the daemon has run
	// OnClockSet is called by Serve, without the lock, after the machine's clock was set; may be
	// nil.
	OnClockSet func()

	mu         sync.Mutex
	byKey      map[K]*alarm[K]
	wallHeap   alarmHeap[K] // ordered by the machine's clock
	uptimeHeap alarmHeap[K] // ordered by the time that the daemon has run
	changed    chan struct{}
}

// alarm is the deadlines of one key.
type alarm[K comparable] struct {
	key       K
	deadlines [2]int64 // nanoseconds since 1970, and since the daemon started; never for none
	heapIndex [2]int   // in the heaps; -1 if not in that heap
}

const never = math.MaxInt64

// The clocks, as indexes into the deadlines of an alarm.
const (
	wallClock = iota
	uptimeClock
)

// New returns alarms without deadlines. now is the machine's clock, ran how long the daemon has run.
func New[K comparable](now func() time.Time, ran func() time.Duration, ring func(K)) *Alarms[K] {
	return &Alarms[K]{
		onExpire: ring, now: now, uptime: ran, byKey: make(map[K]*alarm[K]), changed: make(chan struct{}, 1),
		wallHeap: alarmHeap[K]{clock: wallClock}, uptimeHeap: alarmHeap[K]{clock: uptimeClock},
	}
}

// Set replaces the alarm of key. at is a time of the machine's clock, zero for none; after is a
// duration since the daemon started, 0 for none. With neither, the alarm is removed. It never
// blocks.
func (a *Alarms[K]) Set(key K, at time.Time, after time.Duration) {
	when := [2]int64{never, never}
	if !at.IsZero() {
		when[wallClock] = at.UnixNano()
	}
	if after > 0 {
		when[uptimeClock] = int64(after)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byKey[key]
	if known == nil && when == [2]int64{never, never} || known != nil && known.deadlines == when {
		return
	}
	first := a.next()
	if known != nil {
		a.remove(known)
	}
	if when != [2]int64{never, never} {
		e := &alarm[K]{key: key, deadlines: when, heapIndex: [2]int{-1, -1}}
		a.byKey[key] = e
		for _, h := range a.heaps() {
			if e.deadlines[h.clock] != never {
				heap.Push(h, e)
			}
		}
	}
	if a.next() != first {
		a.Rearm()
	}
}

// Rearm makes Serve set its timer again, because the first deadline of a clock has changed.
func (a *Alarms[K]) Rearm() { notify.Wake(a.changed) }

func (a *Alarms[K]) heaps() [2]*alarmHeap[K] { return [2]*alarmHeap[K]{&a.wallHeap, &a.uptimeHeap} }

// next returns the earliest deadline by each clock.
func (a *Alarms[K]) next() (when [2]int64) {
	for i, h := range a.heaps() {
		when[i] = never
		if len(h.entries) > 0 {
			when[i] = h.entries[0].deadlines[i]
		}
	}
	return when
}

func (a *Alarms[K]) remove(e *alarm[K]) {
	for _, h := range a.heaps() {
		if e.heapIndex[h.clock] >= 0 {
			heap.Remove(h, e.heapIndex[h.clock])
		}
	}
	delete(a.byKey, e.key)
}

// takeExpired removes and returns the keys that are due, and the time until the next deadline;
// never if there is none.
func (a *Alarms[K]) takeExpired() (keys []K, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := [2]int64{a.now().UnixNano(), int64(a.uptime())}
	for i, h := range a.heaps() {
		for len(h.entries) > 0 && h.entries[0].deadlines[i] <= now[i] {
			keys = append(keys, h.entries[0].key)
			a.remove(h.entries[0])
		}
	}
	wait = never
	for i, when := range a.next() {
		if when != never {
			wait = min(wait, time.Duration(when-now[i]))
		}
	}
	return keys, wait
}

// maxTimer bounds the timer, so that its arithmetic does not overflow.
const maxTimer = 1 << 30 * time.Second

// Run calls onExpire for each expired key until ctx ends, and notices when the machine's clock is set.
func (a *Alarms[K]) Run(ctx context.Context, logger *slog.Logger) {
	clock, err := openClockWatch()
	if err != nil {
		logger.Info("a change of the clock is noticed at the next sweep only", "reason", err)
		a.Serve(ctx, nil)
		return
	}
	var watching sync.WaitGroup
	watching.Go(func() { clock.run(ctx) })
	a.Serve(ctx, clock.set)
	watching.Wait()
}

// Serve calls onExpire for each expired key until ctx ends. A value on clockSet means that the
// machine's clock was set; clockSet may be nil.
func (a *Alarms[K]) Serve(ctx context.Context, clockSet <-chan struct{}) {
	timer := time.NewTimer(maxTimer)
	defer timer.Stop()
	for {
		keys, wait := a.takeExpired()
		for _, key := range keys {
			a.onExpire(key)
		}
		timer.Reset(min(wait, maxTimer))
		select {
		case <-timer.C:
		case <-a.changed:
		case <-clockSet:
			if a.OnClockSet != nil {
				a.OnClockSet()
			}
		case <-ctx.Done():
			return
		}
	}
}

// alarmHeap is a heap with the earliest alarm by one clock on top.
type alarmHeap[K comparable] struct {
	clock   int
	entries []*alarm[K]
}

func (h *alarmHeap[K]) Len() int { return len(h.entries) }

func (h *alarmHeap[K]) Less(i, j int) bool {
	return h.entries[i].deadlines[h.clock] < h.entries[j].deadlines[h.clock]
}

func (h *alarmHeap[K]) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].heapIndex[h.clock], h.entries[j].heapIndex[h.clock] = i, j
}

// Push implements heap.Interface.
func (h *alarmHeap[K]) Push(x any) {
	e, _ := x.(*alarm[K]) // set pushes nothing else
	e.heapIndex[h.clock] = len(h.entries)
	h.entries = append(h.entries, e)
}

// Pop implements heap.Interface.
func (h *alarmHeap[K]) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	e.heapIndex[h.clock] = -1
	return e
}
