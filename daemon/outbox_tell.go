package daemon

import (
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// tellDelivery publishes what became of a delivery, which the record says by now. by is who asked for it, "" when nobody did.
func (d *Daemon) tellDelivery(rec *statefs.Record, place int, by string) {
	it := rec.Delivery(place)
	e := eventOf(rec, events.Delivery)
	e.Delivery = &events.Delivered{Target: it.Place, Kind: it.Kind, Status: it.State, Name: it.Name, Error: it.Error, By: by}
	if it.Output != nil {
		e.Delivery.Location, e.Delivery.Bytes = it.Output.Location, it.Output.Bytes
	}
	d.config.Events.Publish(e)
}

// targetChanged publishes that a target went down or came up, and notes it in the daemon's log.
func (d *Daemon) targetChanged(t outbox.TargetState) {
	e := events.Event{Type: events.TargetChanged, Target: &events.Target{Name: t.Label, Down: t.Down, Pending: t.Waiting, Error: t.Reason}}
	if t.Down {
		d.logger.Warn("a target of deliveries is down; it is tried with one entry at a time until it is back", "target", t.Label, "waiting", t.Waiting, "error", t.Reason)
	} else {
		d.logger.Info("a target of deliveries is back", "target", t.Label, "waiting", t.Waiting)
	}
	d.config.Events.Publish(e)
}
