package daemon

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// deliveryCounts counts deliveries since the daemon started, by the kind of the target. It is safe
// for concurrent use.
type deliveryCounts struct {
	mu     sync.Mutex
	byKind map[string]statefs.DeliveryCounts
}

func (c *deliveryCounts) add(kind string, do func(*statefs.DeliveryCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKind == nil {
		c.byKind = make(map[string]statefs.DeliveryCounts)
	}
	counts := c.byKind[kind]
	do(&counts)
	c.byKind[kind] = counts
}

func (c *deliveryCounts) all() map[string]statefs.DeliveryCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]statefs.DeliveryCounts)
	maps.Copy(out, c.byKind)
	return out
}

// Outbox returns the status of the outbox, without reading files.
func (d *Daemon) Outbox() statefs.OutboxStatus {
	s := d.outbox.Summary()
	out := statefs.OutboxStatus{
		Pending: s.Pending, FailedManual: s.Held, OldestAt: optionalTime(s.Oldest), Targets: []statefs.OutboxTarget{},
		Kinds: d.deliveryCounts.all(),
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

// OutboxLines returns the page of entries that match a query, oldest first, and the number of all
// matches. It reads no files.
func (d *Daemon) OutboxLines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
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
