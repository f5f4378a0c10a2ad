package daemon

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// fileClock is how far the time of a file may be behind the clock: the kernel stamps files with the time of its last tick, at most a
// hundredth of a second ago.
const fileClock = 10 * time.Millisecond

const lineRetry = "  Retry requested, starting again..."

// retry starts an operation again that waits for a person or for its next attempt. A request that is older than that state was meant for
// an earlier one, so that repeating it cannot start what it has not seen.
func (d *Daemon) retry(op *operation, r *request) error {
	if !op.can(statefs.CauseRetry) || r.At.At.Add(fileClock).Before(op.rec.Since()) {
		d.meansNothing(op, r)
		return nil
	}
	if err := d.moveFor(op, r, lineRetry, statefs.CauseRetry); err != nil {
		return err
	}
	op.rec.Deaths, op.rec.Reason, op.rec.Error = 0, "", nil
	return nil
}
