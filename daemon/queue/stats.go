package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// LaneStats is the status of a lane.
type LaneStats struct {
	Name    string
	Known   bool      // false: the lane is not set; it is listed because items wait or are held in it
	Lane              // its settings
	Running int       // how many are held, including paused items that keep their places
	Waiting int       // how many wait
	Oldest  time.Time // when the longest waiting item began to wait; the zero time if none waits
	Until   time.Time // until when the rate allows no start; the zero time if it allows one
}

// Waiting returns the number of waiting items in all lanes.
func (q *Queue) Waiting() int { return len(q.waiting) }

// Held returns the lane in which an item is held; false if it is not held.
func (q *Queue) Held(id statefs.ID) (lane string, ok bool) {
	h := q.held[id]
	if h == nil {
		return "", false
	}
	return h.class.lane.name, true
}

// Lane returns the status of a lane; false if it is neither set nor in use.
func (q *Queue) Lane(name string, now time.Time) (LaneStats, bool) {
	l := q.lanes[name]
	if l == nil {
		return LaneStats{}, false
	}
	s := LaneStats{Name: l.name, Known: l.known, Lane: l.set, Running: len(l.holders), Waiting: l.waiting.size()}
	if w := l.waiting.least(); w != nil {
		s.Oldest = timeOf(w.since)
	}
	if until := l.rate.until(&l.set); until.After(now) {
		s.Until = until
	}
	return s, true
}

// Lanes returns the status of all lanes, by name.
func (q *Queue) Lanes(now time.Time) []LaneStats {
	all := make([]LaneStats, 0, len(q.lanes))
	for name := range q.lanes {
		s, _ := q.Lane(name, now)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b LaneStats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Limits returns the status of all limits, by name.
func (q *Queue) Limits() []statefs.LimitStatus {
	all := make([]statefs.LimitStatus, 0, len(q.limits))
	for _, l := range q.limits {
		all = append(all, statefs.LimitStatus{
			Name: l.name, Known: l.known, Capacity: statefs.LaneCapacityOf(l.capacity), Running: len(l.holders),
		})
	}
	slices.SortFunc(all, func(a, b statefs.LimitStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
