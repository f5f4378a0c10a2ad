package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// LaneStats is how a lane stands.
type LaneStats struct {
	Name    string
	Known   bool      // false: it is not set, and only what waits or is held there keeps it in the list
	Lane              // how it is set
	Running int       // how many are held, paused ones that have kept their place among them
	Waiting int       // how many wait
	Oldest  time.Time // since when the one waits that has waited longest; the zero time when none does
	Until   time.Time // until when the rate allows no start; the zero time when it does
}

// LimitStats is how a limit stands.
type LimitStats struct {
	Name     string
	Known    bool // false: it is not set
	Capacity int
	Running  int // how many hold it
}

// Waiting returns how many wait, in all lanes.
func (q *Queue) Waiting() int { return len(q.waiting) }

// Held returns the lane in which an item is held; false: it is not.
func (q *Queue) Held(id statefs.ID) (lane string, ok bool) {
	h := q.held[id]
	if h == nil {
		return "", false
	}
	return h.class.lane.name, true
}

// Lane returns how a lane stands; false when it is neither set nor in use.
func (q *Queue) Lane(name string, now time.Time) (LaneStats, bool) {
	l := q.lanes[name]
	if l == nil {
		return LaneStats{}, false
	}
	s := LaneStats{Name: l.name, Known: l.known, Lane: l.set, Running: l.holders.Len(), Waiting: l.waiting.size()}
	if w := l.waiting.least(); w != nil {
		s.Oldest = moment(w.since)
	}
	if until := l.rate.until(&l.set); until.After(now) {
		s.Until = until
	}
	return s, true
}

// Lanes returns how all lanes stand, by name.
func (q *Queue) Lanes(now time.Time) []LaneStats {
	all := make([]LaneStats, 0, len(q.lanes))
	for name := range q.lanes {
		s, _ := q.Lane(name, now)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b LaneStats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Limits returns how all limits stand, by name.
func (q *Queue) Limits() []LimitStats {
	all := make([]LimitStats, 0, len(q.limits))
	for _, l := range q.limits {
		s := LimitStats{Name: l.name, Known: l.known, Running: l.holders.Len()}
		if l.known {
			s.Capacity = l.capacity
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b LimitStats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
