package keeper

import "time"

// CauseTimeout is the Exit.Cause of a command that ran longer than its Timeout.
const CauseTimeout = "timeout"

// limit is how long a command may run; time in which it is stopped does not count. The lock of its Process guards it.
type limit struct {
	of    time.Duration // 0: no limit
	ran   time.Duration // before since
	since time.Time     // zero while it is stopped, and when it has ended
	timer *time.Timer   // made when there is a limit
	tell  func()
	over  bool // the limit was reached
}

func (l *limit) begin(of time.Duration, now time.Time, tell func()) {
	l.of, l.since, l.tell = of, now, tell
	l.arm(now)
}

// arm has tell called when the time is over.
func (l *limit) arm(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.of <= 0 || l.since.IsZero() {
		return
	}
	rest := max(l.rest(now), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(rest, l.tell)
		return
	}
	l.timer.Reset(rest)
}

// rest is how long the command may still run; meaningless without a limit.
func (l *limit) rest(now time.Time) time.Duration {
	ran := l.ran
	if !l.since.IsZero() {
		ran += now.Sub(l.since)
	}
	return l.of - ran
}

func (l *limit) set(of time.Duration, now time.Time) {
	l.of = of
	l.arm(now)
}

func (l *limit) hold(now time.Time) {
	if l.since.IsZero() {
		return
	}
	l.ran += now.Sub(l.since)
	l.since = time.Time{}
	l.arm(now)
}

func (l *limit) release(now time.Time) {
	if !l.since.IsZero() {
		return
	}
	l.since = now
	l.arm(now)
}

func (l *limit) stopped() bool { return l.since.IsZero() }

func (l *limit) end() {
	l.since = time.Time{}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// SetTimeout changes how long the command may run, counted from its start; 0 takes the limit away.
func (p *Process) SetTimeout(of time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || p.exited {
		return ErrEnded
	}
	p.limit.set(of, time.Now())
	return nil
}

// overdue runs when the timer of the limit has fired, which may have been just before the command was stopped.
func (p *Process) overdue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.exited || p.ending || p.limit.of <= 0 || p.limit.stopped():
	case p.limit.rest(now) > 0:
		p.limit.arm(now)
	default:
		p.limit.over = true
		p.endLocked(CauseTimeout)
	}
}
