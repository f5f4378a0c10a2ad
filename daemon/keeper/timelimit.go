package keeper

import (
	"sync"
	"time"
)

// TimeLimit is how long a command, or other work, may run, not counting time in which it is paused. The zero value is
// no limit.
type TimeLimit struct {
	mu    sync.Mutex
	left  time.Duration // when the clock was last started or paused
	since time.Time     // when the clock was last started; zero while it is paused
	timer *time.Timer   // nil without a limit, and after End
}

// Begin starts the clock; 0 is no limit. expired is called once, on a goroutine of its own, when the time is over.
func (l *TimeLimit) Begin(limit time.Duration, expired func()) {
	if limit <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.since = limit, time.Now()
	l.timer = time.AfterFunc(limit, expired)
}

// SetPaused stops the clock, or lets it go on.
func (l *TimeLimit) SetPaused(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timer == nil || paused == l.since.IsZero():
	case paused:
		l.timer.Stop()
		l.left = max(l.left-time.Since(l.since), 1)
		l.since = time.Time{}
	default:
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}

// Remaining returns how much time is left, at least one nanosecond, or 0 if there is no limit.
func (l *TimeLimit) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timer == nil:
		return 0
	case l.since.IsZero():
		return l.left
	}
	return max(l.left-time.Since(l.since), 1)
}

// End stops the clock for good.
func (l *TimeLimit) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
