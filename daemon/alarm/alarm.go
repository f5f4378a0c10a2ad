// Package alarm rings for a key when its deadline comes: of an operation, a schedule, a file of lanes/. It knows
// what time it is and how long the daemon has run, and nothing of what the keys mean.
package alarm

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/indexheap"
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

	mu      sync.Mutex
	byKey   map[K]*alarm[K]
	heaps   [2]indexheap.Heap[alarm[K]] // one for each clock
	changed chan struct{}
}

// alarm is the deadlines of one key.
type alarm[K comparable] struct {
	key       K
	deadlines [2]int64 // nanoseconds since 1970, and since the daemon started; never for none
	heapIndex [2]int32 // in the heaps
}

const never = math.MaxInt64

// The clocks, as indexes into the deadlines of an alarm.
const (
	wallClock = iota
	uptimeClock
)

// New returns alarms without deadlines. now is the machine's clock, ran how long the daemon has run.
func New[K comparable](now func() time.Time, ran func() time.Duration, ring func(K)) *Alarms[K] {
	a := &Alarms[K]{
		onExpire: ring, now: now, uptime: ran, byKey: make(map[K]*alarm[K]), changed: make(chan struct{}, 1),
	}
	for clock := range a.heaps {
		a.heaps[clock] = indexheap.New(func(x, y *alarm[K]) bool { return x.deadlines[clock] < y.deadlines[clock] },
			func(e *alarm[K]) *int32 { return &e.heapIndex[clock] })
	}
	return a
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
		e := &alarm[K]{key: key, deadlines: when}
		a.byKey[key] = e
		for clock := range a.heaps {
			if when[clock] != never {
				a.heaps[clock].Put(e)
			}
		}
	}
	if a.next() != first {
		a.Rearm()
	}
}

// Rearm makes Serve set its timer again, because the first deadline of a clock has changed.
func (a *Alarms[K]) Rearm() { notify.Wake(a.changed) }

// next returns the earliest deadline by each clock.
func (a *Alarms[K]) next() (when [2]int64) {
	when = [2]int64{never, never}
	for clock := range a.heaps {
		if first := a.heaps[clock].First(); first != nil {
			when[clock] = first.deadlines[clock]
		}
	}
	return when
}

func (a *Alarms[K]) remove(e *alarm[K]) {
	for clock := range a.heaps {
		a.heaps[clock].Remove(e)
	}
	delete(a.byKey, e.key)
}

// takeExpired removes and returns the keys that are due, and the time until the next deadline;
// never if there is none.
func (a *Alarms[K]) takeExpired() (keys []K, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := [2]int64{a.now().UnixNano(), int64(a.uptime())}
	for clock := range a.heaps {
		for h := &a.heaps[clock]; h.Len() > 0 && h.First().deadlines[clock] <= now[clock]; {
			keys = append(keys, h.First().key)
			a.remove(h.First())
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
