package keeper

import "time"

// CauseTimeout is the Exit.Cause of a command that ran longer than its Timeout.
const CauseTimeout = "timeout"

// timeLimit is how long a command may run, not counting time in which it is stopped. The lock of
// its Process guards it.
type timeLimit struct {
	of      time.Duration // 0: no limit
	ran     time.Duration // running time before since
	since   time.Time     // zero while it is stopped, and when it has ended
	timer   *time.Timer   // made when there is a limit
	onLimit func()
	over    bool // the limit was reached
}

func (l *timeLimit) begin(of time.Duration, now time.Time, tell func()) {
	l.of, l.since, l.onLimit = of, now, tell
	l.arm(now)
}

// arm sets the timer to the remaining time, or stops it.
func (l *timeLimit) arm(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.of <= 0 || l.since.IsZero() {
		return
	}
	rest := max(l.remaining(now), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(rest, l.onLimit)
		return
	}
	l.timer.Reset(rest)
}

// remaining returns how long the command may still run. It is meaningless without a limit.
func (l *timeLimit) remaining(now time.Time) time.Duration {
	ran := l.ran
	if !l.since.IsZero() {
		ran += now.Sub(l.since)
	}
	return l.of - ran
}

func (l *timeLimit) set(of time.Duration, now time.Time) {
	l.of = of
	l.arm(now)
}

func (l *timeLimit) pause(now time.Time) {
	if l.since.IsZero() {
		return
	}
	l.ran += now.Sub(l.since)
	l.since = time.Time{}
	l.arm(now)
}

func (l *timeLimit) resume(now time.Time) {
	if !l.since.IsZero() {
		return
	}
	l.since = now
	l.arm(now)
}

func (l *timeLimit) stopped() bool { return l.since.IsZero() }

func (l *timeLimit) end() {
	l.since = time.Time{}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// SetTimeout changes how long the command may run, counted from its start; 0 removes the limit.
func (p *Process) SetTimeout(of time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || p.exited {
		return ErrEnded
	}
	p.limit.set(of, time.Now())
	return nil
}

// overdue runs when the timer of the limit has fired. The command may have been stopped just before
// that.
func (p *Process) overdue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.exited || p.ending || p.limit.of <= 0 || p.limit.stopped():
	case p.limit.remaining(now) > 0:
		p.limit.arm(now)
	default:
		p.limit.over = true
		p.endLocked(CauseTimeout)
	}
}
