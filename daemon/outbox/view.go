package outbox

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// state describes a target. Only a Summary adds its oldest entry.
func (t *target) state() statefs.OutboxTarget {
	state := statefs.OutboxTarget{Name: t.Label, Pending: t.count, Down: t.down}
	if t.down {
		state.Since, state.NextTryAt, state.Error = new(t.since), new(t.next), t.reason
	}
	return state
}

// Summary scans all entries. It does not count deliveries.
func (p *Plan) Summary() statefs.OutboxStatus {
	s := statefs.OutboxStatus{Targets: []statefs.OutboxTarget{}}
	oldest := make(map[*target]int64, len(p.targets))
	for _, e := range p.entries {
		switch e.state {
		case Held:
			s.FailedManual++
		case Waiting, Busy, Deferred:
			s.Pending++
			if at, ok := oldest[e.target]; !ok || e.created < at {
				oldest[e.target] = e.created
			}
		case Unknown, Expected:
		}
	}
	for t, at := range oldest {
		state := t.state()
		state.OldestAt = new(time.Unix(0, at))
		if s.OldestAt == nil || state.OldestAt.Before(*s.OldestAt) {
			s.OldestAt = state.OldestAt
		}
		s.Targets = append(s.Targets, state)
	}
	slices.SortFunc(s.Targets, func(a, b statefs.OutboxTarget) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.OldestAt.Compare(*b.OldestAt))
	})
	return s
}

// compareLines orders lines by time of creation, the oldest first.
func compareLines(a, b *statefs.OutboxLine) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Name.ID.String(), b.Name.ID.String()),
		cmp.Compare(a.Name.Place, b.Name.Place), strings.Compare(a.Name.Kind, b.Name.Kind))
}

// Select returns the first limit matching lines behind after, the oldest first, and how many match
// in all. match sees them without Target and NextTryAt.
func (p *Plan) Select(match func(*statefs.OutboxLine) bool, after *statefs.OutboxLine, limit int,
) (page []statefs.OutboxLine, total int) {
	var l statefs.OutboxLine // one for all: match may make it escape to the heap
	for _, e := range p.entries {
		if e.state == Expected {
			continue
		}
		l = e.line()
		if !match(&l) {
			continue
		}
		total++
		if limit == 0 || after != nil && compareLines(&l, after) <= 0 ||
			len(page) == limit && compareLines(&l, &page[limit-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(page, &l, func(a statefs.OutboxLine, b *statefs.OutboxLine) int {
			return compareLines(&a, b)
		})
		if len(page) == limit {
			page = page[:limit-1]
		}
		page = slices.Insert(page, at, l)
	}
	for i := range page {
		p.entries[page[i].Name].addTarget(&page[i])
	}
	return page, total
}

// Except returns the entries that are not in given, in no order.
func (p *Plan) Except(given map[statefs.EntryName]bool) (names []statefs.EntryName) {
	for name, e := range p.entries {
		if e.state != Expected && !given[name] {
			names = append(names, name)
		}
	}
	return names
}

func (e *entry) line() statefs.OutboxLine {
	l := statefs.OutboxLine{
		Name: e.name, Status: statefs.DeliveryPending, CreatedAt: time.Unix(0, e.created), TargetName: e.label,
	}
	if e.state == Held {
		l.Status = statefs.DeliveryManual
	}
	return l
}

// addTarget adds to the line of an entry what its target tells.
func (e *entry) addTarget(l *statefs.OutboxLine) {
	if e.target == nil {
		return
	}
	l.Target = new(e.target.state())
	switch e.state {
	case Deferred:
		l.NextTryAt = new(time.Unix(0, e.due))
	case Waiting:
		l.NextTryAt = l.Target.NextTryAt
	case Unknown, Expected, Busy, Held:
	}
}
