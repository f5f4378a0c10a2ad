package daemon

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// deliveryCounts count tries since the daemon started, by the kind of the target. They are safe for concurrent use.
type deliveryCounts struct {
	mu sync.Mutex
	of map[string]statefs.DeliveryCounts
}

func (c *deliveryCounts) add(kind string, do func(*statefs.DeliveryCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]statefs.DeliveryCounts)
	}
	counts := c.of[kind]
	do(&counts)
	c.of[kind] = counts
}

func (c *deliveryCounts) all() map[string]statefs.DeliveryCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]statefs.DeliveryCounts)
	maps.Copy(out, c.of)
	return out
}

// Outbox says how the outbox is. It looks at no file for it.
func (d *Daemon) Outbox() statefs.OutboxStatus {
	s := d.outbox.Summary()
	out := statefs.OutboxStatus{
		Pending: s.Pending, FailedManual: s.Held, OldestAt: optional(s.Oldest), Targets: []statefs.OutboxTarget{}, Kinds: d.deliveries.all(),
	}
	for i := range s.Targets {
		out.Targets = append(out.Targets, *shownTarget(&s.Targets[i]))
	}
	return out
}

func shownTarget(t *outbox.TargetState) *statefs.OutboxTarget {
	out := &statefs.OutboxTarget{Name: t.Label, Pending: t.Waiting, Down: t.Down, OldestAt: optional(t.Oldest)}
	if t.Down {
		out.Since, out.NextTryAt, out.Error = optional(t.Since), optional(t.Next), t.Reason
	}
	return out
}

func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// OutboxLines returns the entries that a query chooses, the oldest first, and how many there are in all. It reads no file for it.
func (d *Daemon) OutboxLines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
	var after *outbox.Line
	if !q.AfterName.ID.IsZero() {
		after = &outbox.Line{Created: q.AfterAt, Name: q.AfterName}
	}
	lines, total := d.outbox.Select(func(l *outbox.Line) bool {
		return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, statusOf(l))) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, l.Name.Kind)) &&
			(q.Target == "" || strings.Contains(l.Label, q.Target)) && (q.Before.IsZero() || l.Created.Before(q.Before)) && (q.Of == nil || q.Of(l.Name.ID))
	}, after, q.Limit)
	for i := range lines {
		l := &lines[i]
		line := statefs.OutboxLine{Name: l.Name, TargetName: l.Label, Status: statusOf(l), CreatedAt: l.Created, NextTryAt: optional(l.Next)}
		if l.Standing != outbox.Held {
			line.Target = shownTarget(&l.Target)
		}
		page = append(page, line)
	}
	return page, total
}

func statusOf(l *outbox.Line) statefs.DeliveryStatus {
	if l.Standing == outbox.Held {
		return statefs.DeliveryManual
	}
	return statefs.DeliveryPending
}
