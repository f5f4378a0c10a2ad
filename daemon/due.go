package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// times are when the time of an operation comes, by how long the daemon has run; 0 for none. They hold for the state that it entered at
// since; the deadline is the same in all of them.
type times struct {
	state                  statefs.State
	since                  time.Time
	known                  bool // that of the deadline
	attempt, queue, expiry time.Duration
}

// limited says that a time has to be kept that stands nowhere else: by how long the daemon has run.
func (t *times) limited() bool { return t.attempt > 0 || t.queue > 0 || t.expiry > 0 }

// alarmKey is what an alarm is about: an operation, or the schedule of a job by its endpoint name.
type alarmKey struct {
	id       statefs.ID
	schedule string
}

// ring has somebody look at what an alarm is about.
func (d *Daemon) ring(key alarmKey) {
	if key.schedule != "" {
		d.scheduler.want(key.schedule)
		return
	}
	d.looks.want(key.id)
}

// keepTime has operations looked at when their time comes, until ctx ends.
func (d *Daemon) keepTime(ctx context.Context) { keepAlarms(ctx, d.alarms, d.logger) }

// keepAlarms rings alarms until ctx ends, also when somebody sets the clock.
func keepAlarms[K comparable](ctx context.Context, a *alarms[K], logger *slog.Logger) {
	clock, err := openClockWatch()
	if err != nil {
		logger.Info("a clock that is set is noticed at the next sweep only", "reason", err)
		a.wake(ctx, nil)
		return
	}
	var watching sync.WaitGroup
	watching.Go(func() { clock.run(ctx) })
	a.wake(ctx, clock.set)
	watching.Wait()
}

// ran is how long the daemon has run, which no setting of the clock changes.
func (d *Daemon) ran() time.Duration { return time.Since(d.began) }

// restOf is what is left of a wait or limit of the length whole that began at since and ends at until, by a clock that may have been set
// meanwhile: never more than the whole, and never less than nothing.
func restOf(whole time.Duration, until, now time.Time) time.Duration {
	return min(max(until.Sub(now), 0), max(whole, 0))
}

// timesOf returns the times of an operation. They are worked out once for each state, because a clock that is set later must not change
// them: it would end what waits, or keep it waiting.
func (d *Daemon) timesOf(op *operation) *times {
	t, since := &op.times, op.rec.Since()
	if t.known && t.state == op.state && t.since.Equal(since) {
		return t
	}
	now, ran := d.owner.Now(), d.ran()
	t.state, t.since, t.attempt, t.queue = op.state, since, 0, 0
	if due := op.rec.DueAt; due != nil && op.state == statefs.FailedRetryable {
		t.attempt = ran + restOf(due.Sub(since), *due, now) + 1
	}
	def, err := d.keptDefinition(op.rec)
	if err != nil {
		return t // it cannot be begun either, and whoever begins it says so
	}
	if def.QueueTimeout > 0 && op.state == statefs.Queued {
		t.queue = ran + restOf(def.QueueTimeout, since.Add(def.QueueTimeout), now) + 1
	}
	if def.Deadline > 0 && !t.known {
		t.expiry = ran + restOf(def.Deadline, op.rec.CreatedAt.Add(def.Deadline), now) + 1
	}
	t.known = true
	return t
}

// setAlarm has the operation looked at when its next time comes. What is past already was seen and could not be acted upon: that is tried
// again a while later.
func (d *Daemon) setAlarm(op *operation) {
	t, now, ran := d.timesOf(op), d.owner.Now(), d.ran()
	var at time.Time
	if due := op.rec.DueAt; due != nil && (op.state == statefs.Scheduled || op.state == statefs.FailedRetryable) {
		at = *due
	}
	if due := op.sideDue(); !due.IsZero() && op.letsSidesBegin() && (at.IsZero() || due.Before(at)) {
		at = due
	}
	var after time.Duration
	for i, next := range []time.Duration{t.attempt, t.queue, t.expiry} {
		if i == 2 && (op.state == statefs.Trailing || op.run != nil && op.run.endCause() != nil) {
			continue // it has no effect any more, or has had it
		}
		if next > 0 && (after == 0 || next < after) {
			after = next
		}
	}
	if !at.IsZero() && !at.After(now) || after > 0 && after <= ran {
		at, after = time.Time{}, ran+tryAgain
	}
	d.alarms.set(alarmKey{id: op.id()}, at, after)
}

// isDue reports whether the time has come for which an operation waits. A time of day has come when the clock says so; the wait between two
// attempts is over also when the clock was set back meanwhile.
func (d *Daemon) isDue(op *operation) bool {
	t := d.timesOf(op)
	due := op.rec.DueAt
	return due == nil || !due.After(d.owner.Now()) || t.attempt > 0 && t.attempt <= d.ran()
}

// comeDue puts an operation into the queue whose time, or the time of whose next attempt, has come.
func (d *Daemon) comeDue(op *operation) error {
	if op.state != statefs.Scheduled && op.state != statefs.FailedRetryable || !d.isDue(op) {
		return nil
	}
	if err := d.move(op, statefs.CauseDue); err != nil {
		return err
	}
	return d.durable(op)
}

// heldUntilDue is the cause by which a resume puts an operation back that has no process to go on with: to where it waited when its time has
// not come yet, else into the queue.
func (d *Daemon) heldUntilDue(op *operation) statefs.Cause {
	due := op.rec.DueAt
	switch {
	case due == nil || !due.After(d.owner.Now()):
		return statefs.CauseRelease
	case op.rec.Starts > 0:
		return statefs.CauseRetryLater
	}
	return statefs.CauseNotYet
}

// expired says which limit of an operation is over, nil for none.
func (d *Daemon) expired(op *operation) *statefs.Fault {
	t, ran := d.timesOf(op), d.ran()
	over := func(limit time.Duration) bool { return limit > 0 && limit <= ran }
	if !over(t.expiry) && !over(t.queue) || op.state == statefs.Trailing {
		return nil // what trails has done what it was to do
	}
	def, err := d.keptDefinition(op.rec)
	if err != nil {
		return nil
	}
	if over(t.expiry) {
		return &statefs.Fault{Code: "deadline_exceeded", Message: fmt.Sprintf("it has not ended within its deadline of %s", shortDuration(def.Deadline))}
	}
	return &statefs.Fault{Code: "queue_timeout", Message: fmt.Sprintf("it waited in the queue for longer than its queue_timeout of %s", shortDuration(def.QueueTimeout))}
}

// expire ends an operation one of whose limits is over: at once when it has no work in hand, else when its work has ended.
func (d *Daemon) expire(op *operation) (ended bool, err error) {
	fault := d.expired(op)
	if fault == nil {
		return false, nil
	}
	if op.run != nil {
		op.run.end(&workError{code: fault.Code, err: &expiredError{fault.Message}})
		return false, nil
	}
	if op.rec.Error == nil || op.rec.Error.Code != fault.Code { // on a full disk this happens again
		d.say(op, "  ERROR: "+fault.Message)
	}
	op.rec.Error, op.rec.Reason = fault, ""
	return true, d.finishAs(op, statefs.CauseExpired)
}

// expiredError says that a limit of an operation is over.
type expiredError struct{ message string }

func (e *expiredError) Error() string { return e.message }

// shortDuration writes a duration as job files do, without parts that are zero: 6h and not 6h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if n := len(text) - len(zero); n > 0 && text[n:] == zero && (text[n-1] < '0' || text[n-1] > '9') {
			text = text[:n]
		}
	}
	return text
}
