package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// errTimeout means that an attempt took longer than its job allows.
var errTimeout = errors.New("it took longer than the timeout")

// timeout ends an attempt that takes too long. Paused time does not count. A job without one has no timer, and neither has one whose
// attempt is one command: the keeper keeps its time, also while no daemon is there.
type timeout struct {
	fire func() // called without the lock

	mu    sync.Mutex
	left  time.Duration // when the clock last stood still
	since time.Time     // when the clock began to run; zero while it stands still
	timer *time.Timer
}

func (o *timeout) begin(after time.Duration, now time.Time, fire func()) {
	if after <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fire, o.left, o.since = fire, after, now
	o.timer = time.AfterFunc(after, fire)
}

// hold stops the clock while the work is paused.
func (o *timeout) hold(paused bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil || paused == o.since.IsZero():
	case paused:
		o.timer.Stop()
		o.left = max(o.left-now.Sub(o.since), 1)
		o.since = time.Time{}
	default:
		o.since = now
		o.timer.Reset(o.left)
	}
}

// rest is how much time is left, at least one nanosecond, and 0 when there is no limit.
func (o *timeout) rest(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil:
		return 0
	case o.since.IsZero():
		return max(o.left, 1)
	}
	return max(o.left-now.Sub(o.since), 1)
}

func (o *timeout) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// timedOut ends the work because its time is over.
func (r *run) timedOut() { r.end(r.outOfTime()) }

// restOfTime is what is left of the job's timeout when this daemon begins with the run.
func (r *run) restOfTime() time.Duration {
	if r.def.Timeout <= 0 {
		return 0
	}
	return max(r.def.Timeout-r.elapsed, 1)
}

func (r *run) outOfTime() error {
	return &workError{code: "timeout", err: fmt.Errorf("%w of %s", errTimeout, r.def.Timeout)}
}
