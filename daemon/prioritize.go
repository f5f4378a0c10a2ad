package daemon

import (
	"encoding/json"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// prioritize changes the place of an operation in the queue. The new priority stands in the record before the request is forgotten, so
// it survives; one that does not wait now has it when it does.
func (d *Daemon) prioritize(op *operation, r *request) {
	if !statefs.Prioritize.Means(op.state) {
		d.meansNothing(op, r)
		return
	}
	priority, err := d.wantedPriority(op, r)
	if err != nil {
		d.say(op, "  Prioritize requested: "+err.Error()+"; nothing is changed.")
		d.logger.Warn("request ignored", "id", op.id(), "request", r.Ask, "error", err)
		op.effected = append(op.effected, r.Taken)
		return
	}
	if priority != op.rec.Priority {
		d.say(op, fmt.Sprintf("  Prioritize requested: its priority is now %d.", priority))
		d.logger.Info("priority changed", "id", op.id(), "from", op.rec.Priority, "to", priority)
		op.rec.Priority, op.unsaved = priority, true
		if op.stands == waits && op.state == statefs.Queued {
			d.admission.enter(op) // its place, before whoever waits for it is told
		}
	}
	op.effected = append(op.effected, r.Taken)
}

// wantedPriority is the priority that a request asks for, or the one that puts the operation before all others of its lane.
func (d *Daemon) wantedPriority(op *operation, r *request) (int, error) {
	if len(r.At.Args) == 0 {
		return min(d.admission.front(op), catalog.MaxPriority), nil
	}
	var args struct {
		Priority *int `json:"priority"`
	}
	if err := json.Unmarshal(r.At.Args, &args); err != nil || args.Priority == nil {
		return 0, fmt.Errorf(`want {"priority": 5}, or nothing for the first place, and not %q`, printable(string(r.At.Args)))
	}
	if p := *args.Priority; p < -catalog.MaxPriority || p > catalog.MaxPriority {
		return 0, fmt.Errorf("priority %d is not from %d to %d", p, -catalog.MaxPriority, catalog.MaxPriority)
	}
	return *args.Priority, nil
}
