package queue

import (
	"slices"
	"time"
)

// rate remembers recent starts of a lane. It is exact: no period of length Lane.Per has more than Lane.Starts
// starts.
type rate struct {
	starts []time.Time // the last ones, oldest first
}

// until returns the time before which the rate allows no further start; the zero time if it allows one now.
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

// add records a start. It keeps only as many starts as the settings require.
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
	if len(r.starts) > 2*most { // not on every call, because that would move all of them for each start
		r.starts = slices.Delete(r.starts, 0, len(r.starts)-most)
	}
}

// drop removes a start that was not carried out.
func (r *rate) drop(at time.Time) {
	if i := slices.IndexFunc(r.starts, at.Equal); i >= 0 {
		r.starts = slices.Delete(r.starts, i, i+1)
	}
}

// clampFuture sets starts after now to now: the clock was set back, and a lane does not wait for the
// difference.
func (r *rate) clampFuture(now time.Time) {
	for i := len(r.starts) - 1; i >= 0 && r.starts[i].After(now); i-- {
		r.starts[i] = now
	}
}
