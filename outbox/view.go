package outbox

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// TargetState is how a target is.
type TargetState struct {
	// Label is its name for people.
	Label string
	// Waiting is how many entries are to be delivered to it, with those that are tried now.
	Waiting int
	// Down says that the last try failed; Since is when it went down, Next when it is tried again, and Reason why it is down.
	Down        bool
	Since, Next time.Time
	Reason      string
	// Oldest is when the oldest of the entries was made, zero when there is none. Only a summary has it.
	Oldest time.Time
}

func (t *target) state() TargetState {
	return TargetState{Label: t.Label, Waiting: t.count, Down: t.down, Since: t.since, Next: t.next, Reason: t.reason}
}

// Summary says what there is.
type Summary struct {
	// Pending is how many entries are tried until they are delivered, Held how many wait for a person.
	Pending, Held int
	// Oldest is when the oldest pending one was made, zero when there is none.
	Oldest time.Time
	// Targets are those that have pending entries, by label.
	Targets []TargetState
}

// Summary looks at all entries.
func (p *Plan) Summary() Summary {
	var s Summary
	oldest := make(map[*target]int64, len(p.targets))
	for _, e := range p.entries {
		switch e.standing {
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

// Line is what is known of one entry.
type Line struct {
	Name     statefs.EntryName
	Standing Standing
	Created  time.Time
	// Label is that of its target, and Target how that is: the zero value for one that is held.
	Label  string
	Target TargetState
	// Next is when it is tried again: zero when that is at once, or never.
	Next time.Time
}

// Compare orders lines, the oldest first.
func (l *Line) Compare(other *Line) int {
	a, b := &l.Name, &other.Name
	return cmp.Or(l.Created.Compare(other.Created), strings.Compare(a.ID.String(), b.ID.String()), cmp.Compare(a.Place, b.Place), strings.Compare(a.Kind, b.Kind))
}

// Select returns the first lines that match, the oldest first, those behind after alone, and how many match in all.
func (p *Plan) Select(match func(*Line) bool, after *Line, limit int) (page []Line, total int) {
	var l Line // one for all: match may keep it from the stack
	for _, e := range p.entries {
		if e.standing == Expected {
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

// Beside returns the entries that are not among the given ones, in no order.
func (p *Plan) Beside(given map[statefs.EntryName]bool) (names []statefs.EntryName) {
	for name, e := range p.entries {
		if e.standing != Expected && !given[name] {
			names = append(names, name)
		}
	}
	return names
}

func (e *entry) line() Line {
	l := Line{Name: e.name, Label: e.label, Standing: e.standing, Created: time.Unix(0, e.created)}
	if e.target != nil {
		l.Target = e.target.state()
	}
	switch {
	case e.standing == Deferred:
		l.Next = time.Unix(0, e.due)
	case e.standing == Waiting && l.Target.Down:
		l.Next = l.Target.Next
	}
	return l
}
