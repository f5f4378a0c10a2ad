package daemon

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// warnBackoff is the back-off for failures of class warn if the job configures no delay: such
// failures may repeat forever.
var warnBackoff = catalog.Retry{
	Initial: 5 * time.Second, Factor: catalog.DefaultRetryFactor,
	Cap: catalog.DefaultRetryCap, Jitter: catalog.DefaultRetryJitter,
}

// nextAttempt decides when an operation is retried after a failed attempt. It returns the cause of
// the next transition and the log line: retry later, with the time in the record; retry at once; or
// no retry, because a time limit would be over by then.
func (d *Daemon) nextAttempt(op *operation, a attemptOutcome, err error) (statefs.Cause, string) {
	rec, now := op.rec, d.owner.Now()
	what := fmt.Sprintf("Attempt %d of %d failed", rec.Attempts, a.maxAttempts)
	if a.maxAttempts == catalog.UnboundedAttempts {
		what = fmt.Sprintf("Attempt %d failed", rec.Attempts)
	}
	if a.class == catalog.ClassWarn {
		what = fmt.Sprintf("Run %d came to nothing, which counts as no attempt", rec.Run)
	}
	rec.Backoff++
	wait := retryDelay(op.run, err, a.class, rec.Backoff)
	if limit := d.exceededLimit(op, now, wait); limit != "" {
		if a.partial {
			return statefs.CauseDone, fmt.Sprintf("  %s. They are not done again: %s would be over by then.",
				rec.Error.Message, limit)
		}
		return statefs.CauseFailed, fmt.Sprintf("  ERROR: %s. It is not tried again: %s would be over by then.",
			rec.Error.Message, limit)
	}
	what = fmt.Sprintf("  %s: %s. It is tried again", what, rec.Error.Message)
	if wait <= 0 {
		return statefs.CauseRescued, what + "."
	}
	due := now.Add(wait)
	rec.DueAt = &due
	return statefs.CauseRetryLater, fmt.Sprintf("%s in %s, at %s.", what, formatWait(wait),
		due.Format("2006-01-02 15:04:05"))
}

// retryDelay returns the delay after failure n of a class.
func retryDelay(r *work.Run, failure error, class catalog.Class, n int) time.Duration {
	if asked := r.Outcome().RequestedDelay(failure); asked > 0 {
		return asked
	}
	retry := r.Def().Retry
	if class == catalog.ClassWarn && retry.Initial == 0 {
		retry.Initial, retry.Factor, retry.Cap, retry.Jitter = warnBackoff.Initial, warnBackoff.Factor,
			warnBackoff.Cap, warnBackoff.Jitter
	}
	return backoff(retry, n, rand.Float64())
}

// exceededLimit names the time limit of an operation that a retry after wait would exceed, "" for
// none. It uses the retention clock, which does not follow a forward jump of the clock at once,
// because the decision is final.
func (d *Daemon) exceededLimit(op *operation, now time.Time, wait time.Duration) string {
	rec, def := op.rec, op.run.Def()
	if rec.RetryUntil == nil && def.Retry.For > 0 {
		until := now.Add(def.Retry.For - rec.ActiveTime(now))
		rec.RetryUntil = &until
	}
	begins := d.retentionClock.now(now, d.uptime()).Add(wait)
	switch t := d.deadlinesOf(op); {
	case rec.RetryUntil != nil && begins.After(*rec.RetryUntil):
		return "retry_for (" + param.FormatDuration(def.Retry.For) + ")"
	case t.expiry > 0 && d.uptime()+wait >= t.expiry:
		return "its deadline (" + param.FormatDuration(def.Deadline) + " from the submit)"
	}
	return ""
}

// formatWait formats a delay with the precision that people need.
func formatWait(wait time.Duration) string {
	switch {
	case wait >= 10*time.Second:
		return param.FormatDuration(wait.Round(time.Second))
	case wait >= time.Second:
		return wait.Round(100 * time.Millisecond).String()
	}
	return wait.Round(time.Millisecond).String()
}
