package daemon

import (
	"fmt"
	"time"

	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
)

// fileTimeSlack is how far the time of a file may be behind the clock: the kernel stamps files with
// the time of its last tick, at most a hundredth of a second ago.
const fileTimeSlack = 10 * time.Millisecond

// olderThanState reports whether a request was made before the present state was entered. It is
// false if that state was entered in the future: then the clock was set back, and the times cannot
// be compared.
func (d *Daemon) olderThanState(op *operation, r *request) bool {
	since := op.rec.Since()
	return r.At.At.Add(fileTimeSlack).Before(since) && !since.After(d.owner.Now())
}

// retry restarts an operation that waits for a person or for its next attempt, unless that is refused.
func (d *Daemon) retry(op *operation, r *request, answer decide.Answer) error {
	if _, err := acts.Check(nil, op.rec, op.state, statefs.Retry, statefs.Args{}); err != nil {
		d.refuse(op, r.Action, err)
		op.doneRequests = append(op.doneRequests, r.TakenRequest)
		return nil
	}
	other, err := d.retryUnlessEqual(op, func() error {
		if err := d.transitionFor(op, r, answer); err != nil {
			return err
		}
		d.clearFailure(op.rec)
		return nil
	})
	d.ignoreEqualRetry(op, r, other)
	return err
}

// ignoreEqualRetry drops a retry because the equal operation other is live; it does nothing if
// other is nil.
func (d *Daemon) ignoreEqualRetry(op *operation, r *request, other *statefs.Record) {
	if other == nil {
		return
	}
	d.logLine(op, lineEqual(other.ID))
	d.logger.Info("request has no effect: an equal operation is live", "id", op.id(), "request",
		r.Action, "equal", other.ID)
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
}

func lineEqual(other statefs.ID) string {
	return fmt.Sprintf("  Retry requested while operation %s does the same: nothing to do before that has ended.", other)
}

// retryUnlessEqual calls begin to restart an operation. If the operation waits for a person while
// an equal one is live, it returns that one instead, as a submit would.
func (d *Daemon) retryUnlessEqual(op *operation, begin func() error) (other *statefs.Record, err error) {
	def, err := d.storedDefinition(op.rec)
	if op.state != statefs.FailedManual || d.config.Intake == nil || err != nil {
		return nil, begin() // without a definition the start fails and reports it
	}
	found, err := d.config.Intake.RestartUnlessDuplicate(op.rec, def.Unique.OnHit, begin)
	return found.Record, err
}

// clearFailure forgets why the last attempt failed and when attempts began to fail: a person wants
// another try.
func (d *Daemon) clearFailure(rec *statefs.Record) {
	if rec.Reason == reasonDependency {
		rec.After, rec.Require = nil, "" // they have ended, and the person wants it to run anyway
	}
	rec.DiedAt, rec.Reason, rec.Error, rec.RetryUntil = nil, "", nil, nil
	if len(rec.Steps) > 0 {
		rec.Attempts, rec.Warnings, rec.Backoff = 0, 0, 0 // in a job with steps they count for the step
	}
}
