package queue

import (
	"container/list"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// hold is an item that is held: it occupies places in a lane and in limits, and its key.
type hold struct {
	id     statefs.ID
	class  *class
	key    *key            // nil: none
	next   *hold           // of the same key
	places []*list.Element // in the lane, then in the limits of the class
	// start is the waiter that Next has started, and at the time of that; see UndoStart. nil if Hold made the
	// hold or confirmed the start.
	start *waiter
	at    time.Time
}

// take makes an item held, even without a free place.
func (q *Queue) take(id statefs.ID, c *class, k *key) *hold {
	h := &hold{id: id, class: c, key: k, places: make([]*list.Element, 0, 1+len(c.limits))}
	q.held[id] = h
	c.held++
	h.places = append(h.places, c.lane.holders.PushBack(h))
	for _, limit := range c.limits {
		h.places = append(h.places, limit.holders.PushBack(h))
	}
	if k == nil {
		return h
	}
	at := &k.holders
	for *at != nil {
		at = &(*at).next
	}
	*at = h
	k.settle()
	return h
}

// release frees everything that an item holds.
func (q *Queue) release(h *hold) {
	delete(q.held, h.id)
	h.class.lane.holders.Remove(h.places[0])
	for i, limit := range h.class.limits {
		limit.holders.Remove(h.places[1+i])
	}
	if k := h.key; k != nil {
		at := &k.holders
		for *at != h {
			at = &(*at).next
		}
		*at = h.next
		k.settle()
		q.forgetKey(k)
	}
	h.class.held--
	q.forgetClass(h.class)
}
