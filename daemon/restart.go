package daemon

import (
	"errors"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// afterLoss says what becomes of work that was cut off because its daemon or its machine went away, which is never the work's fault
// and costs no attempt. It is a pure function.
func afterLoss(rule catalog.Restart, attempts, most int) statefs.Cause {
	switch rule {
	case catalog.RestartFail:
		return statefs.CauseFailed
	case catalog.RestartRetry:
		if attempts >= most {
			return statefs.CauseFailed
		}
	case catalog.RestartAdopt, catalog.RestartResume:
	}
	return statefs.CauseRescued
}

// lost puts an operation whose work was cut off where its job's restart rule says.
func (d *Daemon) lost(op *operation) error {
	rule, most := catalog.RestartRetry, 1
	if def, _, err := d.workOf(op.rec); err == nil { // without one it cannot begin again, and says so then
		rule, most = def.Restart(), def.Retry.MaxAttempts
	}
	if afterLoss(rule, op.rec.Attempts, most) == statefs.CauseRescued {
		op.rec.Rescues++
		cutOff(op.rec, d.owner.Now())
		return d.move(op, statefs.CauseRescued)
	}
	return d.failLost(op)
}

// failLost ends an operation that must not begin again.
func (d *Daemon) failLost(op *operation) error {
	op.rec.Error = &statefs.Fault{Code: "cut_off", Message: "the work was cut off because the daemon or the machine stopped, and the job does not let it begin again"}
	if op.rec.CurrentStep() != nil {
		return d.cannotStep(op, &workError{code: op.rec.Error.Code, err: errors.New(op.rec.Error.Message)})
	}
	d.say(op, "  ERROR: "+op.rec.Error.Message)
	return d.finishAs(op, statefs.CauseFailed)
}
