package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// errTimeout means that an attempt took longer than its job allows.
var errTimeout = errors.New("it took longer than the timeout")

// timeout ends an attempt that takes too long. Paused time does not count. A job without a timeout
// has no timer. An attempt that is one command has none either: its keeper measures the time, even
// while no daemon runs.
type timeout struct {
	onExpire func() // called without the lock

	mu     sync.Mutex
	budget time.Duration // the time left when the clock was last stopped
	since  time.Time     // when the clock was last started; zero while it is stopped
	timer  *time.Timer
}

func (o *timeout) begin(after time.Duration, now time.Time, fire func()) {
	if after <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onExpire, o.budget, o.since = fire, after, now
	o.timer = time.AfterFunc(after, fire)
}

// setPaused stops the clock while the work is paused.
func (o *timeout) setPaused(paused bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil || paused == o.since.IsZero():
	case paused:
		o.timer.Stop()
		o.budget = max(o.budget-now.Sub(o.since), 1)
		o.since = time.Time{}
	default:
		o.since = now
		o.timer.Reset(o.budget)
	}
}

// remaining returns how much time is left, at least one nanosecond, or 0 if there is no limit.
func (o *timeout) remaining(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil:
		return 0
	case o.since.IsZero():
		return max(o.budget, 1)
	}
	return max(o.budget-now.Sub(o.since), 1)
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
func (r *run) timedOut() { r.end(r.timeoutError()) }

// remainingTimeout returns what is left of the job's timeout when this daemon begins with the run.
func (r *run) remainingTimeout() time.Duration {
	if r.def.Timeout <= 0 {
		return 0
	}
	return max(r.def.Timeout-r.elapsed, 1)
}

func (r *run) timeoutError() error {
	return &workError{code: "timeout", err: fmt.Errorf("%w of %s", errTimeout, r.def.Timeout)}
}
