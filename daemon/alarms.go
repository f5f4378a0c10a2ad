package daemon

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// alarms say when a time has come: one timer for all of them. Nothing is scanned; setting one costs the logarithm of their number.
//
// There are two clocks. That of the machine says when it is three o'clock; somebody may set it, ahead or back. The other one says how long
// the daemon has run, and nothing changes it: by it go waits and limits, so that setting a clock neither ends work nor keeps it waiting.
// An alarm may have a time by each, and comes with the first.
//
// An alarm only says "look now", and only once: whoever is told compares the times again and sets the next one.
type alarms[K comparable] struct {
	ring func(K)              // called by run, without the lock
	now  func() time.Time     // the clock of the machine
	ran  func() time.Duration // how long the daemon has run
	// reset is called by wake, without the lock, when the clock of the machine was set; nil: nobody minds.
	reset func()

	mu      sync.Mutex
	all     map[K]*alarm[K]
	clock   alarmHeap[K] // by the clock of the machine
	run     alarmHeap[K] // by how long the daemon has run
	changed chan struct{}
}

// alarm is when something is due.
type alarm[K comparable] struct {
	key   K
	when  [2]int64 // nanoseconds: since 1970, and since the daemon began; never for no time
	place [2]int   // in the heaps; -1 for none
}

const never = math.MaxInt64

// The clocks, as indexes of an alarm's times.
const (
	byClock = iota
	byRun
)

func newAlarms[K comparable](now func() time.Time, ran func() time.Duration, ring func(K)) *alarms[K] {
	return &alarms[K]{
		ring: ring, now: now, ran: ran, all: make(map[K]*alarm[K]), changed: make(chan struct{}, 1),
		clock: alarmHeap[K]{which: byClock}, run: alarmHeap[K]{which: byRun},
	}
}

// set replaces the alarm of key: at is a time of the machine's clock, zero for none; after is how long the daemon will have run, 0 for none.
// With neither there is no alarm. It never blocks.
func (a *alarms[K]) set(key K, at time.Time, after time.Duration) {
	when := [2]int64{never, never}
	if !at.IsZero() {
		when[byClock] = at.UnixNano()
	}
	if after > 0 {
		when[byRun] = int64(after)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.all[key]
	if known == nil && when == [2]int64{never, never} || known != nil && known.when == when {
		return
	}
	first := a.first()
	if known != nil {
		a.take(known)
	}
	if when != [2]int64{never, never} {
		e := &alarm[K]{key: key, when: when, place: [2]int{-1, -1}}
		a.all[key] = e
		for _, h := range a.heaps() {
			if e.when[h.which] != never {
				heap.Push(h, e)
			}
		}
	}
	if a.first() != first {
		a.again()
	}
}

// again has the timer set anew, because a clock was set.
func (a *alarms[K]) again() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *alarms[K]) heaps() [2]*alarmHeap[K] { return [2]*alarmHeap[K]{&a.clock, &a.run} }

// first are the next times by either clock.
func (a *alarms[K]) first() (when [2]int64) {
	for i, h := range a.heaps() {
		when[i] = never
		if len(h.list) > 0 {
			when[i] = h.list[0].when[i]
		}
	}
	return when
}

func (a *alarms[K]) take(e *alarm[K]) {
	for _, h := range a.heaps() {
		if e.place[h.which] >= 0 {
			heap.Remove(h, e.place[h.which])
		}
	}
	delete(a.all, e.key)
}

// due takes what is due and returns how long it takes until something else is; never when there is nothing.
func (a *alarms[K]) due() (keys []K, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := [2]int64{a.now().UnixNano(), int64(a.ran())}
	for i, h := range a.heaps() {
		for len(h.list) > 0 && h.list[0].when[i] <= now[i] {
			keys = append(keys, h.list[0].key)
			a.take(h.list[0])
		}
	}
	wait = never
	for i, when := range a.first() {
		if when != never {
			wait = min(wait, time.Duration(when-now[i]))
		}
	}
	return keys, wait
}

// longestTimer is for how long the timer is set at most, which arithmetic needs.
const longestTimer = 1 << 30 * time.Second

// wake rings what is due until ctx ends. A value on clockSet says that the clock of the machine was set; it may be nil.
func (a *alarms[K]) wake(ctx context.Context, clockSet <-chan struct{}) {
	timer := time.NewTimer(longestTimer)
	defer timer.Stop()
	for {
		keys, wait := a.due()
		for _, key := range keys {
			a.ring(key)
		}
		timer.Reset(min(wait, longestTimer))
		select {
		case <-timer.C:
		case <-a.changed:
		case <-clockSet:
			if a.reset != nil {
				a.reset()
			}
		case <-ctx.Done():
			return
		}
	}
}

// alarmHeap has the next alarm by one clock on top.
type alarmHeap[K comparable] struct {
	which int
	list  []*alarm[K]
}

func (h *alarmHeap[K]) Len() int { return len(h.list) }

func (h *alarmHeap[K]) Less(i, j int) bool {
	return h.list[i].when[h.which] < h.list[j].when[h.which]
}

func (h *alarmHeap[K]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].place[h.which], h.list[j].place[h.which] = i, j
}

// Push implements heap.Interface.
func (h *alarmHeap[K]) Push(x any) {
	e, _ := x.(*alarm[K]) // set pushes nothing else
	e.place[h.which] = len(h.list)
	h.list = append(h.list, e)
}

// Pop implements heap.Interface.
func (h *alarmHeap[K]) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	e.place[h.which] = -1
	return e
}
