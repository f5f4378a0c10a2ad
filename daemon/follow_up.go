package daemon

import (
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// errNotReady delays the end of an operation until the daemon accepts submits, which it does once
// it knows every live operation.
var errNotReady = errors.New("submits are not taken yet")

// recordFollowUp submits the job that follows a completed operation, and notes the outcome in the
// record. It runs before the end is committed. If the daemon dies in between, the next one submits
// again under the same idempotency key and gets the same operation. The returned error is
// transient.
func (d *Daemon) recordFollowUp(op *operation, rec *statefs.Record, rep *work.Report) error {
	if rec.Status != statefs.Completed || rec.Then != nil || d.config.Intake == nil {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if err != nil || def.Then == nil {
		return nil //nolint:nilerr // a definition lost since the run promises no follow-up
	}
	if !isClosed(d.ready) {
		return errNotReady
	}
	follower, refusal, err := d.Trigger.FollowUp(def.Then,
		catalog.Values{Params: params, ID: rec.ID.String()}, rec.CreatedAt, rep.Member)
	if err != nil {
		return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
	}
	if refusal != nil {
		rec.Then = &statefs.Follower{Error: refusal.Error()}
		d.logLine(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), refusal))
		d.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", refusal)
	} else {
		rec.Then = &statefs.Follower{ID: follower}
		d.logLine(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // after a full disk this is repeated
	return nil
}
