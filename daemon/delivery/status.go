package delivery

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// counts counts deliveries since the daemon started, by the kind of the target. It is safe
// for concurrent use.
type counts struct {
	mu     sync.Mutex
	byKind map[string]statefs.DeliveryCounts
}

func (c *counts) add(kind string, do func(*statefs.DeliveryCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.byKind[kind]
	do(&counts)
	c.byKind[kind] = counts
}

func (c *counts) all() map[string]statefs.DeliveryCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byKind)
}

// Status returns the status of the outbox, without reading files.
func (d *Deliveries) Status() statefs.OutboxStatus {
	out := d.outbox.Summary()
	out.Kinds = d.counts.all()
	return out
}

// Lines returns the page of entries that match a query, oldest first, and the number of all
// matches. It reads no files.
func (d *Deliveries) Lines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
	var after *statefs.OutboxLine
	if !q.AfterName.ID.IsZero() {
		after = &statefs.OutboxLine{CreatedAt: q.AfterAt, Name: q.AfterName}
	}
	return d.outbox.Select(func(l *statefs.OutboxLine) bool {
		return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, l.Status)) &&
			(len(q.Kinds) == 0 || slices.Contains(q.Kinds, l.Name.Kind)) &&
			(q.Target == "" || strings.Contains(l.TargetName, q.Target)) &&
			(q.Before.IsZero() || l.CreatedAt.Before(q.Before)) && (q.Of == nil || q.Of(l.Name.ID))
	}, after, q.Limit)
}

// publish publishes the state of a delivery after it was recorded. by is who requested the
// change, "" for none.
func (d *Deliveries) publish(rec *statefs.Record, place int, by string) {
	it := rec.Delivery(place)
	e := events.Of(rec, events.Delivery)
	e.Delivery = &api.EventDelivery{
		Target: it.Place, Kind: it.Kind, Status: it.State, Name: it.Name,
		Error: it.Error, By: by,
	}
	if it.Output != nil {
		e.Delivery.Location, e.Delivery.Bytes = it.Output.Location, it.Output.Bytes
	}
	d.events.Publish(e)
}

// publishTarget publishes and logs that a target went down or came up.
func (d *Deliveries) publishTarget(t statefs.OutboxTarget) {
	e := api.Event{Type: events.TargetChanged, Target: &api.EventTarget{
		Name: t.Name, Down: t.Down, Pending: t.Pending, Error: t.Error,
	}}
	if t.Down {
		d.logger.Warn("delivery target is down, retrying with one entry at a time", "target",
			t.Name, "waiting", t.Pending, "error", t.Error)
	} else {
		d.logger.Info("delivery target is up again", "target", t.Name, "waiting", t.Pending)
	}
	d.events.Publish(e)
}
