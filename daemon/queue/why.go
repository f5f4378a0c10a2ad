package queue

import (
	"math"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Why returns why an item waits; false if it does not wait. The reason is the first that applies: its lane is
// unknown, paused or full, a limit is unknown or exhausted, the rate of the lane is exhausted, another item holds
// the key or has an earlier turn for it and may start. With [statefs.WaitsToStart] nothing blocks it: it starts as
// soon as Next reaches it. HeldBy is the longest holder of the lane or the limit, or the holder of the key, or the
// item before this one. Keys and limits may let later items overtake the position.
func (q *Queue) Why(id statefs.ID, now time.Time) (statefs.Waiting, bool) {
	w := q.waiting[id]
	if w == nil {
		return statefs.Waiting{}, false
	}
	l, hindered := w.class.lane, w.class.blocker(now)
	why := statefs.Waiting{Reason: hindered.reason, Lane: l.name, Position: l.waiting.position(w)}
	if since := timeOf(w.since); !since.IsZero() {
		why.Since = &since
	}
	switch hindered.reason { //nolint:exhaustive // a queue knows no others
	case statefs.WaitsForLane:
		why.HeldBy = l.longestHolder()
	case statefs.WaitsForLimit:
		why.Limit, why.HeldBy = hindered.quota.name, hindered.quota.longestHolder()
	case statefs.WaitsUnknownLimit:
		why.Limit = hindered.quota.name
	case statefs.WaitsForRate:
		why.Until = &hindered.until
	case statefs.WaitsToStart:
		if k := w.line.key; k != nil && len(k.holders) > 0 {
			why.Reason, why.HeldBy = statefs.WaitsForKey, k.holders[0].id
		} else if k != nil {
			if first := k.turn(now); first != w {
				why.Reason, why.HeldBy = statefs.WaitsForKey, first.id
			}
		}
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
		add(c.free.waiting.first())
		if l := c.lines.First(); l != nil {
			add(l.head())
		}
	}
	return ids
}
