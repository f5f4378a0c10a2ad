package daemon

import (
	"fmt"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// fileClock is how far the time of a file may be behind the clock: the kernel stamps files with the time of its last tick, at most a
// hundredth of a second ago.
const fileClock = 10 * time.Millisecond

const lineRetry = "  Retry requested, starting again..."

// olderThanState says whether a request was made before the present state was entered. A state of the future was entered before the clock
// was set back, and says nothing about what was asked when.
func (d *Daemon) olderThanState(op *operation, r *request) bool {
	since := op.rec.Since()
	return r.At.At.Add(fileClock).Before(since) && !since.After(d.owner.Now())
}

// retry starts an operation again that waits for a person or for its next attempt. A request that is older than that state was meant for
// an earlier one, so that repeating it cannot start what it has not seen.
func (d *Daemon) retry(op *operation, r *request) error {
	if !op.can(statefs.CauseRetry) || d.olderThanState(op, r) {
		d.meansNothing(op, r)
		return nil
	}
	other, err := d.again(op, func() error {
		if err := d.moveFor(op, r, lineRetry, statefs.CauseRetry); err != nil {
			return err
		}
		d.forgive(op)
		return nil
	})
	d.sayEqual(op, r, other)
	return err
}

// sayEqual says that a retry does nothing because an equal operation lives; nil: there is none.
func (d *Daemon) sayEqual(op *operation, r *request, other *statefs.Record) {
	if other == nil {
		return
	}
	d.say(op, lineEqual(other.ID))
	d.logger.Info("request means nothing now: an equal operation lives", "id", op.id(), "request", r.Ask, "equal", other.ID)
	op.effected = append(op.effected, r.Taken)
}

func lineEqual(other statefs.ID) string {
	return fmt.Sprintf("  Retry requested while operation %s does the same: nothing to do before that has ended.", other)
}

// again starts an operation again, but not one that waits for a person while an equal one lives: that is the answer to a submit too.
func (d *Daemon) again(op *operation, begin func() error) (other *statefs.Record, err error) {
	def, err := d.keptDefinition(op.rec)
	if op.state != statefs.FailedManual || d.config.Intake == nil || err != nil {
		return nil, begin() // without a definition it cannot start, and says so
	}
	found, err := d.config.Intake.Again(op.rec, def.Unique.OnHit, begin)
	return found.Record, err
}

// forgive forgets why the last attempt failed, and since when attempts do: a person wants it tried again.
func (d *Daemon) forgive(op *operation) {
	d.forgiveIn(op.rec)
}

func (d *Daemon) forgiveIn(rec *statefs.Record) {
	if rec.Reason == reasonDependency {
		d.chains.name(rec.ID, nil)
		rec.After, rec.Require = nil, "" // they have ended, and the person wants it all the same
	}
	rec.Deaths, rec.Reason, rec.Error, rec.RetryUntil = 0, "", nil, nil
	if len(rec.Steps) > 0 {
		rec.Attempts, rec.Warnings = 0, 0 // they are those of the step
	}
}
