package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// deadlines are the deadlines of an operation, as durations since the daemon started; 0 for none.
// attempt and queue are valid for the state that the operation entered at since. expiry is the same
// in every state.
type deadlines struct {
	state                  statefs.State
	since                  time.Time
	known                  bool // expiry has been computed
	attempt, queue, expiry time.Duration
}

// anySet reports whether a deadline is set, which only the memory of this daemon contains.
func (t *deadlines) anySet() bool { return t.attempt > 0 || t.queue > 0 || t.expiry > 0 }

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

// isDue reports whether the time has come for which an operation waits. A time of day has come when
// the clock shows it. The wait between two attempts also ends if the clock was set back.
func (s *starts) isDue(op *operation) bool {
	t := s.deadlinesOf(op)
	due := op.rec.DueAt
	return due == nil || !due.After(s.owner.Now()) || t.attempt > 0 && t.attempt <= s.uptime()
}

// expiredLimit returns which limits of an operation have expired, and the error that this is; nil for none.
func (e *ends) expiredLimit(op *operation) (expired decide.LimitExpired, fault *statefs.Fault) {
	t, ran := e.deadlinesOf(op), e.uptime()
	over := func(limit time.Duration) bool { return limit > 0 && limit <= ran }
	expired = decide.LimitExpired{Deadline: over(t.expiry), Queue: over(t.queue)}
	if expired == (decide.LimitExpired{}) {
		return expired, nil
	}
	def, err := e.storedDefinition(op.rec)
	if err != nil {
		return expired, nil
	}
	if expired.Deadline {
		return expired, &statefs.Fault{Code: "deadline_exceeded", Message: fmt.Sprintf("it has not ended within its deadline of %s",
			param.FormatDuration(def.Deadline))}
	}
	return expired, &statefs.Fault{
		Code: "queue_timeout",
		Message: fmt.Sprintf("it waited in the queue for longer than its queue_timeout of %s",
			param.FormatDuration(def.QueueTimeout)),
	}
}

// endExpired ends the work of an operation, one of whose limits has expired.
func (e *ends) endExpired(op *operation, x seen, _ decide.Answer) error {
	op.run.End(&work.Error{Code: x.fault.Code, Err: errors.New(x.fault.Message)})
	return nil
}

// expire ends an operation without work, one of whose limits has expired.
func (e *ends) expire(op *operation, x seen, answer decide.Answer) error {
	if op.rec.Error == nil || op.rec.Error.Code != x.fault.Code { // on a full disk this code runs again
		e.logLine(op, "  ERROR: "+x.fault.Message)
	}
	op.rec.Error, op.rec.Reason = x.fault, ""
	return e.finishAs(op, answer.Cause)
}
