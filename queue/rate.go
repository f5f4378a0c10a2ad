package queue

import (
	"slices"
	"time"
)

// rate remembers when a lane has started something. It counts exactly: in no stretch of time as long as Lane.Per are there more than
// Lane.Starts.
type rate struct {
	starts []time.Time // the last ones, oldest first
}

// until returns the time before which the settings allow no further start; the zero time when they do not hold it back.
func (r *rate) until(set *Lane) (until time.Time) {
	n := len(r.starts)
	if set.Starts > 0 && n >= set.Starts {
		until = r.starts[n-set.Starts].Add(set.Per)
	}
	if set.Gap > 0 && n > 0 {
		if next := r.starts[n-1].Add(set.Gap); next.After(until) {
			until = next
		}
	}
	return until
}

// add enters a start. Only as many as the settings ask for are kept.
func (r *rate) add(at time.Time, set *Lane) {
	most := max(set.Starts, 0)
	if set.Gap > 0 {
		most = max(most, 1)
	}
	after := len(r.starts)
	for after > 0 && r.starts[after-1].After(at) {
		after--
	}
	r.starts = slices.Insert(r.starts, after, at)
	if len(r.starts) > 2*most { // not each time: that would move all of them for each start
		r.starts = slices.Delete(r.starts, 0, len(r.starts)-most)
	}
}

// turnBack takes starts that lie ahead of now as made now: the clock was set back, and a lane does not wait for the difference.
func (r *rate) turnBack(now time.Time) {
	for i := len(r.starts) - 1; i >= 0 && r.starts[i].After(now); i-- {
		r.starts[i] = now
	}
}
