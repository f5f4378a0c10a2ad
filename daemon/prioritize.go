package daemon

import (
	"encoding/json"
	"fmt"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// prioritize changes the priority of an operation. The record with the new priority is written
// before the request is dropped, so the priority survives a crash. An operation that is not waiting
// uses it the next time it waits.
func (d *Daemon) prioritize(op *operation, r *request) error {
	priority, err := d.requestedPriority(op, r)
	if err != nil {
		d.logLine(op, "  Prioritize requested: "+err.Error()+"; nothing is changed.")
		d.logger.Warn("request ignored", "id", op.id(), "request", r.Action, "error", err)
		op.doneRequests = append(op.doneRequests, r.TakenRequest)
		return nil
	}
	if priority != op.rec.Priority {
		d.logLine(op, fmt.Sprintf("  Prioritize requested: its priority is now %d.", priority))
		d.logger.Info("priority changed", "id", op.id(), "from", op.rec.Priority, "to", priority)
		op.rec.Priority, op.unsaved = priority, true
		if op.standing == decide.Waiting && op.state == statefs.Queued {
			d.admission.tryAdmit(op) // move it in the queue before the requester gets an answer
		}
	}
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
	return nil
}

// requestedPriority returns the priority given in the request. A request without arguments gets the
// priority that puts the operation first in its lane.
func (d *Daemon) requestedPriority(op *operation, r *request) (int, error) {
	if len(r.At.Args) == 0 {
		return min(d.admission.frontPriority(op), statefs.MaxPriority), nil
	}
	var args struct {
		Priority *int `json:"priority"`
	}
	if err := json.Unmarshal(r.At.Args, &args); err != nil || args.Priority == nil {
		return 0, fmt.Errorf(`want {"priority": 5}, or nothing for the first place, and not %q`, stream.Printable(string(r.At.Args)))
	}
	if p := *args.Priority; p < -statefs.MaxPriority || p > statefs.MaxPriority {
		return 0, fmt.Errorf("priority %d is not from %d to %d", p, -statefs.MaxPriority, statefs.MaxPriority)
	}
	return *args.Priority, nil
}
