package queue

import (
	"container/list"

	"github.com/jobdir/jobdir/statefs"
)

// hold is an item that is held: it has its places in a lane and in limits, and its key.
type hold struct {
	id     statefs.ID
	class  *class
	key    *key            // nil: none
	next   *hold           // of the same key
	places []*list.Element // in the lane, then in the limits of the class
}

// take makes an item held, whether there is room or not.
func (q *Queue) take(id statefs.ID, c *class, k *key) {
	h := &hold{id: id, class: c, key: k, places: make([]*list.Element, 0, 1+len(c.limits))}
	q.held[id] = h
	c.held++
	h.places = append(h.places, c.lane.holders.PushBack(h))
	for _, limit := range c.limits {
		h.places = append(h.places, limit.holders.PushBack(h))
	}
	if k == nil {
		return
	}
	at := &k.holders
	for *at != nil {
		at = &(*at).next
	}
	*at = h
	k.settle()
}

// release takes all back that an item holds.
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
