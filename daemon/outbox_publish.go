package daemon

import (
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// publishDelivery publishes the state of a delivery after it was recorded. by is who requested the
// change, "" for none.
func (d *Daemon) publishDelivery(rec *statefs.Record, place int, by string) {
	it := rec.Delivery(place)
	e := eventOf(rec, events.Delivery)
	e.Delivery = &events.Delivered{
		Target: it.Place, Kind: it.Kind, Status: it.State, Name: it.Name,
		Error: it.Error, By: by,
	}
	if it.Output != nil {
		e.Delivery.Location, e.Delivery.Bytes = it.Output.Location, it.Output.Bytes
	}
	d.config.Events.Publish(e)
}

// publishTarget publishes and logs that a target went down or came up.
func (d *Daemon) publishTarget(t outbox.TargetState) {
	e := events.Event{Type: events.TargetChanged, Target: &events.Target{
		Name: t.Label, Down: t.Down,
		Pending: t.Waiting, Error: t.Reason,
	}}
	if t.Down {
		d.logger.Warn("a target of deliveries is down; it is tried with one entry at a time until it is back", "target",
			t.Label, "waiting", t.Waiting, "error", t.Reason)
	} else {
		d.logger.Info("a target of deliveries is back", "target", t.Label, "waiting", t.Waiting)
	}
	d.config.Events.Publish(e)
}
