package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// remainingWait returns the rest of a wait or limit of the given length that ends at until. The
// clock may have been set since it began, so the rest is never more than the whole and never
// negative.
func remainingWait(whole time.Duration, until, now time.Time) time.Duration {
	return min(max(until.Sub(now), 0), max(whole, 0))
}

// deadlinesOf returns the deadlines of an operation. They are computed once for each state: a clock
// that is set later must neither end an operation nor prolong its wait.
func (c *core) deadlinesOf(op *operation) *deadlines {
	t, since := &op.deadlines, op.rec.Since()
	if t.known && t.state == op.state && t.since.Equal(since) {
		return t
	}
	now, ran := c.owner.Now(), c.uptime()
	t.state, t.since, t.attempt, t.queue = op.state, since, 0, 0
	if due := op.rec.DueAt; due != nil && op.state == statefs.FailedRetryable {
		t.attempt = ran + remainingWait(due.Sub(since), *due, now) + 1
	}
	def, err := c.storedDefinition(op.rec)
	if err != nil {
		return t // startOperation fails for the same reason and reports it
	}
	if def.QueueTimeout > 0 && op.state == statefs.Queued {
		t.queue = ran + remainingWait(def.QueueTimeout, since.Add(def.QueueTimeout), now) + 1
	}
	if def.Deadline > 0 && !t.known {
		t.expiry = ran + remainingWait(def.Deadline, op.rec.CreatedAt.Add(def.Deadline), now) + 1
	}
	t.known = true
	return t
}

// setAlarm sets the alarm of an operation to its next deadline. A deadline that has passed was
// handled by this reconcile without effect, and is tried again after retryInterval.
func (c *core) setAlarm(op *operation) {
	t, now, ran := c.deadlinesOf(op), c.owner.Now(), c.uptime()
	var at time.Time
	if due := op.rec.DueAt; due != nil && (op.state == statefs.Scheduled || op.state == statefs.FailedRetryable) {
		at = *due
	}
	if due := op.nextOptionalRetry(); !due.IsZero() && op.allowsOptionalSteps() && (at.IsZero() || due.Before(at)) {
		at = due
	}
	var after time.Duration
	for i, next := range []time.Duration{t.attempt, t.queue, t.expiry} {
		if i == 2 && (op.state == statefs.Trailing || op.run != nil && op.run.EndCause() != nil) {
			continue // the limit has no effect any more, or has had it
		}
		if next > 0 && (after == 0 || next < after) {
			after = next
		}
	}
	if !at.IsZero() && !at.After(now) || after > 0 && after <= ran {
		at, after = time.Time{}, ran+retryInterval
	}
	c.alarms.Set(op.id(), at, after)
}

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
