package daemon

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// calm is the back-off of failures that count as none, for a job that says no wait: they may come for ever.
var calm = catalog.Retry{Initial: 5 * time.Second, Factor: catalog.DefaultRetryFactor, Cap: catalog.DefaultRetryCap, Jitter: catalog.DefaultRetryJitter}

// nextAttempt decides when an operation is tried again whose attempt failed, and returns the cause by which it goes on and the line for its
// log: later, with the time in the record; at once; or not at all, when its time would be over by then.
func (d *Daemon) nextAttempt(op *operation, a attempted, err error) (statefs.Cause, string) {
	rec, now := op.rec, d.owner.Now()
	n, what := rec.Attempts, fmt.Sprintf("Attempt %d of %d failed", rec.Attempts, a.most)
	if a.most == catalog.UnboundedAttempts {
		what = fmt.Sprintf("Attempt %d failed", rec.Attempts)
	}
	if a.class == catalog.ClassWarn {
		n, what = rec.Warnings, fmt.Sprintf("Run %d came to nothing, which counts as no attempt", rec.Run)
	}
	wait := op.run.waitAfter(err, a.class, n)
	if limit := d.outOfTime(op, now, wait); limit != "" {
		return statefs.CauseFailed, fmt.Sprintf("  ERROR: %s. It is not tried again: %s would be over by then.", rec.Error.Message, limit)
	}
	what = fmt.Sprintf("  %s: %s. It is tried again", what, rec.Error.Message)
	if wait <= 0 {
		return statefs.CauseRescued, what + "."
	}
	due := now.Add(wait)
	rec.DueAt = &due
	return statefs.CauseRetryLater, fmt.Sprintf("%s in %s, at %s.", what, roundWait(wait), due.Format("2006-01-02 15:04:05"))
}

// waitAfter is how long is waited after failure n of a class.
func (r *run) waitAfter(failure error, class catalog.Class, n int) time.Duration {
	if asked := r.askedWait(failure); asked > 0 {
		return asked
	}
	retry := r.def.Retry
	if class == catalog.ClassWarn && retry.Initial == 0 {
		retry.Initial, retry.Factor, retry.Cap, retry.Jitter = calm.Initial, calm.Factor, calm.Cap, calm.Jitter
	}
	return backoff(retry, n, rand.Float64())
}

// outOfTime names the limit of an operation that is over when it begins again after a wait, "" for none. It goes by a clock that does not
// jump ahead at once, since what it says is final.
func (d *Daemon) outOfTime(op *operation, now time.Time, wait time.Duration) string {
	rec, def := op.rec, op.run.def
	if rec.RetryUntil == nil && def.Retry.For > 0 {
		until := now.Add(def.Retry.For - rec.Worked(now))
		rec.RetryUntil = &until
	}
	begins := d.steady.now(now, d.ran()).Add(wait)
	switch t := d.timesOf(op); {
	case rec.RetryUntil != nil && begins.After(*rec.RetryUntil):
		return "retry_for (" + shortDuration(def.Retry.For) + ")"
	case t.expiry > 0 && d.ran()+wait >= t.expiry:
		return "its deadline (" + shortDuration(def.Deadline) + " from the submit)"
	}
	return ""
}

// roundWait writes a wait as exactly as people care for.
func roundWait(wait time.Duration) string {
	switch {
	case wait >= 10*time.Second:
		return shortDuration(wait.Round(time.Second))
	case wait >= time.Second:
		return wait.Round(100 * time.Millisecond).String()
	}
	return wait.Round(time.Millisecond).String()
}
