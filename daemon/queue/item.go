package queue

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Item is an operation as the queue sees it.
type Item struct {
	ID       statefs.ID
	Lane     string   // it takes one place of this lane
	Limits   []string // it takes one place of each; order and repetitions are ignored
	Key      string   // no other item with the same key is held at the same time; empty: no key
	KeyOrder KeyOrder
	Begun    bool      // it has started before: it is first of its key, except with AnyOrder
	Priority int       // high first; the default is 0
	Since    time.Time // when it became eligible, by the wall clock
	Sequence uint64    // order of submit; 0: the number in the ID
}

// KeyOrder is the order in which the items of a key start. If the items of a key have different orders, the
// lowest value counts.
type KeyOrder uint8

// The orders. With BySubmit and ByPriority the first item of a key blocks all others of the key, even while
// its lane or a limit prevents its start, or while KeepTurn keeps its turn.
const (
	BySubmit   KeyOrder = iota // in order of submit
	ByPriority                 // by priority, then in order of submit
	Arriving                   // BySubmit, only with KeepTurn: the item may be refused, and must not let another start
	AnyOrder                   // in order of submit; others overtake an item that cannot start
	keyOrders
)

// waiter is a waiting item. Only its links change while it is in a tree.
type waiter struct {
	id       statefs.ID
	score    int64 // -priority, or with ageing: since minus the worth of the priority; the lowest is first
	since    int64 // nanoseconds since 1970
	sequence uint64
	class    *class
	line     *line
	inLane   links  // in the tree of its lane
	inLine   links  // in the tree of its line
	weight   uint32 // random; balances the trees
	order    KeyOrder
	begun    bool // it has started before
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

// moreUrgent is the order by priority. An item that returns after a failure keeps its turn among items of the
// same priority.
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
	return w.id.String() < o.id.String() // a total order even if the caller passes a number twice
}

// turnBefore is the order of turns for a key by submit; items that have started before come first.
func (w *waiter) turnBefore(o *waiter) bool {
	if w.begun != o.begun {
		return w.begun
	}
	return w.submittedBefore(o)
}

// maxNanoseconds bounds the absolute value of a time and of the worth of a priority, 146 years in
// nanoseconds, so that their difference does not overflow.
const maxNanoseconds = 1<<62 - 1

// score is the first part of a place.
func score(priority int, since int64, ageing time.Duration) int64 {
	if ageing <= 0 {
		return -max(int64(priority), -math.MaxInt64)
	}
	most := int64(maxNanoseconds / ageing)
	return since - min(max(int64(priority), -most), most)*int64(ageing)
}

// nanoseconds returns a time as nanoseconds since 1970, clamped to about a century.
func nanoseconds(t time.Time) int64 {
	switch first, last := time.Unix(0, -maxNanoseconds), time.Unix(0, maxNanoseconds); {
	case t.Before(first):
		return -maxNanoseconds
	case t.After(last):
		return maxNanoseconds
	}
	return t.UnixNano()
}

// timeOf is the inverse of nanoseconds; the zero time for the lower bound.
func timeOf(ns int64) time.Time {
	if ns == -maxNanoseconds {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
