package outbox

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// TargetState describes a target.
type TargetState struct {
	// Label is its name for people.
	Label string
	// Waiting is how many entries are to be delivered to it, including those being tried now.
	Waiting int
	// Down means that the last try failed. Since is when it went down, Next when it is tried again,
	// and Reason why it is down.
	Down        bool
	Since, Next time.Time
	Reason      string
	// Oldest is when its oldest entry was made, zero when there is none. Only a Summary sets it.
	Oldest time.Time
}

func (t *target) state() TargetState {
	return TargetState{Label: t.Label, Waiting: t.count, Down: t.down, Since: t.since, Next: t.next, Reason: t.reason}
}

// Summary summarizes all entries.
type Summary struct {
	// Pending counts the entries that are tried until they are delivered, Held the entries that wait
	// for a person.
	Pending, Held int
	// Oldest is when the oldest pending entry was made, zero when there is none.
	Oldest time.Time
	// Targets are the targets with pending entries, ordered by label.
	Targets []TargetState
}

// Summary scans all entries.
func (p *Plan) Summary() Summary {
	var s Summary
	oldest := make(map[*target]int64, len(p.targets))
	for _, e := range p.entries {
		switch e.state {
		case Held:
			s.Held++
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
		state.Oldest = time.Unix(0, at)
		if s.Oldest.IsZero() || state.Oldest.Before(s.Oldest) {
			s.Oldest = state.Oldest
		}
		s.Targets = append(s.Targets, state)
	}
	slices.SortFunc(s.Targets, func(a, b TargetState) int {
		return cmp.Or(strings.Compare(a.Label, b.Label), a.Oldest.Compare(b.Oldest))
	})
	return s
}

// Line describes one entry.
type Line struct {
	Name    statefs.EntryName
	State   EntryState
	Created time.Time
	// Label is that of its target, and Target the target's state: the zero value for a held entry.
	Label  string
	Target TargetState
	// Next is when it is tried again: zero when that is at once, or never.
	Next time.Time
}

// Compare orders lines by time of creation, the oldest first.
func (l *Line) Compare(other *Line) int {
	a, b := &l.Name, &other.Name
	return cmp.Or(l.Created.Compare(other.Created), strings.Compare(a.ID.String(), b.ID.String()),
		cmp.Compare(a.Place, b.Place), strings.Compare(a.Kind, b.Kind))
}

// Select returns the first limit matching lines behind after, the oldest first, and how many match
// in all.
func (p *Plan) Select(match func(*Line) bool, after *Line, limit int) (page []Line, total int) {
	var l Line // one for all: match may make it escape to the heap
	for _, e := range p.entries {
		if e.state == Expected {
			continue
		}
		l = e.line()
		if !match(&l) {
			continue
		}
		total++
		if limit == 0 || after != nil && l.Compare(after) <= 0 || len(page) == limit && l.Compare(&page[limit-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(page, &l, func(a Line, b *Line) int { return a.Compare(b) })
		if len(page) == limit {
			page = page[:limit-1]
		}
		page = slices.Insert(page, at, l)
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

func (e *entry) line() Line {
	l := Line{Name: e.name, Label: e.label, State: e.state, Created: time.Unix(0, e.created)}
	if e.target != nil {
		l.Target = e.target.state()
	}
	switch {
	case e.state == Deferred:
		l.Next = time.Unix(0, e.due)
	case e.state == Waiting && l.Target.Down:
		l.Next = l.Target.Next
	}
	return l
}
