package delivery

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/outbox"
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
	if c.byKind == nil {
		c.byKind = make(map[string]statefs.DeliveryCounts)
	}
	counts := c.byKind[kind]
	do(&counts)
	c.byKind[kind] = counts
}

func (c *counts) all() map[string]statefs.DeliveryCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]statefs.DeliveryCounts)
	maps.Copy(out, c.byKind)
	return out
}

// Status returns the status of the outbox, without reading files.
func (d *Deliveries) Status() statefs.OutboxStatus {
	s := d.outbox.Summary()
	out := statefs.OutboxStatus{
		Pending: s.Pending, FailedManual: s.Held, OldestAt: optionalTime(s.Oldest), Targets: []statefs.OutboxTarget{},
		Kinds: d.counts.all(),
	}
	for i := range s.Targets {
		out.Targets = append(out.Targets, *targetStatus(&s.Targets[i]))
	}
	return out
}

func targetStatus(t *outbox.TargetState) *statefs.OutboxTarget {
	out := &statefs.OutboxTarget{Name: t.Label, Pending: t.Waiting, Down: t.Down, OldestAt: optionalTime(t.Oldest)}
	if t.Down {
		out.Since, out.NextTryAt, out.Error = optionalTime(t.Since), optionalTime(t.Next), t.Reason
	}
	return out
}

func optionalTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// Lines returns the page of entries that match a query, oldest first, and the number of all
// matches. It reads no files.
func (d *Deliveries) Lines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
	var after *outbox.Line
	if !q.AfterName.ID.IsZero() {
		after = &outbox.Line{Created: q.AfterAt, Name: q.AfterName}
	}
	lines, total := d.outbox.Select(func(l *outbox.Line) bool {
		return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, statusOf(l))) &&
			(len(q.Kinds) == 0 || slices.Contains(q.Kinds, l.Name.Kind)) &&
			(q.Target == "" || strings.Contains(l.Label, q.Target)) && (q.Before.IsZero() || l.Created.Before(q.Before)) &&
			(q.Of == nil || q.Of(l.Name.ID))
	}, after, q.Limit)
	for i := range lines {
		l := &lines[i]
		line := statefs.OutboxLine{
			Name: l.Name, TargetName: l.Label, Status: statusOf(l), CreatedAt: l.Created,
			NextTryAt: optionalTime(l.Next),
		}
		if l.State != outbox.Held {
			line.Target = targetStatus(&l.Target)
		}
		page = append(page, line)
	}
	return page, total
}

func statusOf(l *outbox.Line) statefs.DeliveryStatus {
	if l.State == outbox.Held {
		return statefs.DeliveryManual
	}
	return statefs.DeliveryPending
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
func (d *Deliveries) publishTarget(t outbox.TargetState) {
	e := api.Event{Type: events.TargetChanged, Target: &api.EventTarget{
		Name: t.Label, Down: t.Down,
		Pending: t.Waiting, Error: t.Reason,
	}}
	if t.Down {
		d.logger.Warn("delivery target is down, retrying with one entry at a time", "target",
			t.Label, "waiting", t.Waiting, "error", t.Reason)
	} else {
		d.logger.Info("delivery target is up again", "target", t.Label, "waiting", t.Waiting)
	}
	d.events.Publish(e)
}
