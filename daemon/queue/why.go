package queue

import (
	"math"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Reason is why an item waits, as shown to people.
type Reason string

// The reasons in the order in which Why checks them: it returns the first that applies.
const (
	UnknownLane  Reason = "unknown_lane"  // the lane is not set
	LanePaused   Reason = "lane_paused"   // the lane starts nothing
	LaneFull     Reason = "lane_full"     // all places of the lane are occupied
	UnknownLimit Reason = "unknown_limit" // a limit is not set
	Limit        Reason = "limit"         // all places of a limit are occupied
	Rate         Reason = "rate"          // the rate of the lane is exhausted
	Key          Reason = "key"           // another item holds the key, or has an earlier turn for it and may start
	Starting     Reason = "starting"      // nothing blocks it: it starts as soon as Next reaches it
)

// Waiting describes why an item waits.
type Waiting struct {
	Reason Reason
	// lane_full, limit: the longest holder; key: the holder or the item before this one; otherwise zero
	HeldBy   statefs.ID
	Lane     string    // its lane, for every reason
	Limit    string    // limit, unknown_limit: the name of the limit
	Position int       // position among all waiting items of its lane, from 1; keys and limits may let later ones overtake
	Since    time.Time // since when it waits, for any reason
	Until    time.Time // rate: when the block ends; otherwise the zero time
}

// Why returns why an item waits; false if it does not wait.
func (q *Queue) Why(id statefs.ID, now time.Time) (Waiting, bool) {
	w := q.waiting[id]
	if w == nil {
		return Waiting{}, false
	}
	l := w.class.lane
	why := Waiting{Lane: l.name, Position: l.waiting.position(w), Since: timeOf(w.since)}
	hindered := w.class.blocker(now)
	why.Reason, why.Until = hindered.reason, hindered.until
	switch hindered.reason {
	case LaneFull:
		why.HeldBy = l.longestHolder()
	case Limit:
		why.Limit, why.HeldBy = hindered.quota.name, hindered.quota.longestHolder()
	case UnknownLimit:
		why.Limit = hindered.quota.name
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

// FrontPriority returns a priority that puts an item before all others that wait in its lane; its own if it
// is first already. It returns false if the item does not wait.
func (q *Queue) FrontPriority(id statefs.ID) (priority int, ok bool) {
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
	// Solve since - priority*ageing < first.score for the lowest priority.
	return own + int((w.score-first.score)/int64(q.ageing)) + 1, true
}

// Heads returns the first waiting items, each once, in no order: for each combination of lane and limits in
// use, the first of the lane, the first item without a key and the first item with a key. There are at most
// three for each combination.
func (q *Queue) Heads() (ids []statefs.ID) {
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
