package queue

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// hold is an item that is held: it occupies places in a lane and in limits, and its key.
type hold struct {
	id    statefs.ID
	class *class
	key   *key // nil: none
	// start is the waiter that Next has started, and at the time of that; see UndoStart. nil if Hold made the
	// hold or confirmed the start.
	start *waiter
	at    time.Time
}

// take makes an item held, even without a free place.
func (q *Queue) take(id statefs.ID, c *class, k *key) *hold {
	h := &hold{id: id, class: c, key: k}
	q.held[id] = h
	c.held++
	c.lane.holders = append(c.lane.holders, h)
	for _, limit := range c.limits {
		limit.holders = append(limit.holders, h)
	}
	if k != nil {
		k.holders = append(k.holders, h)
		k.settle()
	}
	return h
}

// release frees everything that an item holds.
func (q *Queue) release(h *hold) {
	same := func(o *hold) bool { return o == h }
	delete(q.held, h.id)
	h.class.lane.holders = slices.DeleteFunc(h.class.lane.holders, same)
	for _, limit := range h.class.limits {
		limit.holders = slices.DeleteFunc(limit.holders, same)
	}
	if k := h.key; k != nil {
		k.holders = slices.DeleteFunc(k.holders, same)
		k.settle()
		q.forgetKey(k)
	}
	h.class.held--
	q.forgetClass(h.class)
}
