package queue

import (
	"math"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Reason is why an item waits, in the words in which it is shown.
type Reason string

// The reasons, in the order in which they are looked at: the first that holds is given.
const (
	UnknownLane  Reason = "unknown_lane"  // no such lane is set
	LanePaused   Reason = "lane_paused"   // the lane starts nothing
	LaneFull     Reason = "lane_full"     // as many are held as the lane has places
	UnknownLimit Reason = "unknown_limit" // no such limit is set
	Limit        Reason = "limit"         // as many are held as the limit has places
	Rate         Reason = "rate"          // the lane has started so many lately
	Key          Reason = "key"           // somebody holds the key, or has an earlier turn for it and may start
	Starting     Reason = "starting"      // nothing: it starts as soon as Next comes to it
)

// Waiting says why an item waits.
type Waiting struct {
	Reason   Reason
	HeldBy   statefs.ID // lane_full, limit: who has held a place longest; key: who holds it or is before; otherwise the zero ID
	Lane     string     // its lane, whatever the reason
	Limit    string     // limit, unknown_limit: which one
	Position int        // place among all that wait in its lane, the next is 1; keys and limits can let later ones pass
	Since    time.Time  // since when it waits at all, for this reason or another
	Until    time.Time  // rate: when it ends by itself; otherwise the zero time
}

// Why says why an item waits; false: it does not.
func (q *Queue) Why(id statefs.ID, now time.Time) (Waiting, bool) {
	w := q.waiting[id]
	if w == nil {
		return Waiting{}, false
	}
	l := w.class.lane
	why := Waiting{Lane: l.name, Position: l.waiting.position(w), Since: moment(w.since)}
	hindered := w.class.hindrance(now)
	why.Reason, why.Until = hindered.reason, hindered.until
	switch hindered.reason {
	case LaneFull:
		why.HeldBy = l.longest()
	case Limit:
		why.Limit, why.HeldBy = hindered.room.name, hindered.room.longest()
	case UnknownLimit:
		why.Limit = hindered.room.name
	case Starting:
		if k := w.line.key; k != nil && k.holders != nil {
			why.Reason, why.HeldBy = Key, k.holders.id
		} else if k != nil {
			if first := k.turn(now); first != w {
				why.Reason, why.HeldBy = Key, first.id
			}
		}
	case UnknownLane, LanePaused, Rate, Key:
	}
	return why, true
}

// Front returns a priority with which an item stands before all others that wait in its lane: its own when it is first already. False: it
// does not wait.
func (q *Queue) Front(id statefs.ID) (priority int, ok bool) {
	w := q.waiting[id]
	if w == nil {
		return 0, false
	}
	first := w.class.lane.waiting.first()
	if q.ageing <= 0 {
		if first == w {
			return int(-w.score), true
		}
		return int(-max(first.score, -(math.MaxInt64-1))) + 1, true
	}
	own := int((w.since - w.score) / int64(q.ageing))
	if first == w {
		return own, true
	}
	// The lowest with since - priority*ageing < first.score.
	return own + int((w.score-first.score)/int64(q.ageing)) + 1, true
}

// First returns those that stand first, each once, in no order: of all that wait in a lane, and of those there that need the same limits, of which with
// and without a key the one that is to start next. They are as many as there are combinations of lane and limits in use, three times at most.
func (q *Queue) First() (ids []statefs.ID) {
	add := func(w *waiter) {
		if w != nil && !slices.Contains(ids, w.id) {
			ids = append(ids, w.id)
		}
	}
	for _, c := range q.classes {
		if c.waiting == 0 {
			continue
		}
		add(c.lane.waiting.first())
		add(c.free.waiting.least())
		if len(c.lines) > 0 {
			add(c.lines[0].head())
		}
	}
	return ids
}
