package daemon

import (
	"sync"
	"time"
)

const (
	// maxCorrection is how far the clock may be set forward between two calls without counting as a jump.
	maxCorrection = time.Minute
	// jumpTrustDelay is how long the clock must stay ahead after a jump before it is believed.
	jumpTrustDelay = 24 * time.Hour
)

// retentionClock decides what has expired. It follows the clock of the machine, but ignores a
// forward jump for a day: otherwise everything would expire, and be deleted, before a person sets
// the clock right. A backward jump is believed: it only keeps things longer.
//
// A jump is noticed by comparison with the uptime of the daemon, which no setting of the clock
// changes. Jumps before the daemon started go unnoticed. A sleep of the machine counts as a jump, so
// after it things expire a day later.
type retentionClock struct {
	mu        sync.Mutex
	startedAt time.Time // when the daemon started, by the believed clock; zero before the first call
	jumped    bool
	jumpedAt  time.Duration // the uptime when the jump was noticed
}

// now returns the time for retention decisions. clock is the time of the machine, ran the uptime of
// the daemon.
func (s *retentionClock) now(clock time.Time, ran time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := clock.Round(0).Add(-ran) // without the monotonic reading
	ahead := began.Sub(s.startedAt)
	switch {
	case s.startedAt.IsZero(), ahead <= maxCorrection, s.jumped && ran-s.jumpedAt >= jumpTrustDelay:
		s.startedAt, s.jumped = began, false
		return clock
	case !s.jumped:
		s.jumped, s.jumpedAt = true, ran
	}
	return s.startedAt.Add(ran)
}
