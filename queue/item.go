package queue

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Item is one operation as the queue sees it.
type Item struct {
	ID            statefs.ID
	Lane          string    // the lane that it takes one slot of
	Limits        []string  // the limits that it takes one slot of each; order and repetitions mean nothing
	Key           string    // nobody else with the same key is held meanwhile; empty: no key
	KeyByPriority bool      // the order within the key is by priority, then by submit; it counts when all that wait for the key say so
	Priority      int       // high ones first, 0 is usual
	Since         time.Time // when it became eligible; the wall clock counts
	Sequence      uint64    // order of submit; 0: the number in the ID
}

// waiter is an item that waits. Nothing of it changes while it is in a tree, except the links.
type waiter struct {
	id       statefs.ID
	score    int64 // -priority, or with ageing since less what the priority is worth; the lowest is first
	since    int64 // nanoseconds since 1970
	sequence uint64
	class    *class
	line     *line
	inLane   links  // in the tree of its lane
	inLine   links  // in the tree of its line
	weight   uint32 // makes the trees shallow
	plain    bool   // not KeyByPriority
}

// before reports whether w has a better place than o.
func (w *waiter) before(o *waiter) bool {
	switch {
	case w.score != o.score:
		return w.score < o.score
	case w.since != o.since:
		return w.since < o.since
	}
	return w.submittedBefore(o)
}

// moreUrgent is the order within a key, unless that is the order of submit: an item that comes back after a failure keeps its turn among those with
// the same priority.
func (w *waiter) moreUrgent(o *waiter) bool {
	if w.score != o.score {
		return w.score < o.score
	}
	return w.submittedBefore(o)
}

// submittedBefore reports whether w was submitted before o.
func (w *waiter) submittedBefore(o *waiter) bool {
	if w.sequence != o.sequence {
		return w.sequence < o.sequence
	}
	return w.id.String() < o.id.String() // the caller gave a number twice: there is still one order
}

// farthest is the most that a time and the worth of a priority may each be away from zero, 146 years in nanoseconds, so that their difference
// does not overflow.
const farthest = 1<<62 - 1

// score is the first part of a place.
func score(priority int, since int64, ageing time.Duration) int64 {
	if ageing <= 0 {
		return -max(int64(priority), -math.MaxInt64)
	}
	most := int64(farthest / ageing)
	return since - min(max(int64(priority), -most), most)*int64(ageing)
}

// nanoseconds puts a time into 8 bytes; what is farther away than a century counts as that.
func nanoseconds(t time.Time) int64 {
	switch first, last := time.Unix(0, -farthest), time.Unix(0, farthest); {
	case t.Before(first):
		return -farthest
	case t.After(last):
		return farthest
	}
	return t.UnixNano()
}

// moment is the time that nanoseconds was given; the zero time for all that is too long ago.
func moment(ns int64) time.Time {
	if ns == -farthest {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
