package queue

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Options are fixed for the life of a queue.
type Options struct {
	// Ageing is how much waiting one point of priority is worth; 0, the default: priority alone decides, and low ones may wait for
	// ever.
	Ageing time.Duration
}

// Queue holds all that waits to start and all that has started. It is not safe for concurrent use; Why, Front, Wake, Waiting, Lane,
// Lanes and Limits change nothing, so they may be called at the same time as each other.
type Queue struct {
	ageing  time.Duration
	lanes   map[string]*lane
	limits  map[string]*limit
	keys    map[string]*key
	classes []*class
	waiting map[statefs.ID]*waiter
	held    map[statefs.ID]*hold
	random  uint32
}

// New makes an empty queue that knows no lane.
func New(options Options) *Queue {
	return &Queue{
		ageing:  options.Ageing,
		lanes:   map[string]*lane{},
		limits:  map[string]*limit{},
		keys:    map[string]*key{},
		waiting: map[statefs.ID]*waiter{},
		held:    map[statefs.ID]*hold{},
		random:  1,
	}
}

// Wait says that an item may start as far as it is concerned. One that waits already is changed: its priority, its lane, anything. One that is held gives
// back what it holds and waits again.
func (q *Queue) Wait(item Item) {
	q.Leave(item.ID)
	w := &waiter{
		id: item.ID, since: nanoseconds(item.Since), sequence: item.Sequence,
		class: q.class(item.Lane, item.Limits), weight: q.weight(), plain: !item.KeyByPriority,
	}
	w.score = score(item.Priority, w.since, q.ageing)
	if w.sequence == 0 {
		w.sequence = item.ID.Sequence()
	}
	q.waiting[w.id] = w
	w.class.waiting++
	w.class.lane.waiting.insert(w)
	if k := q.key(item.Key); k != nil {
		k.enter(w)
	} else {
		w.line = &w.class.free
		w.line.waiting.insert(w)
	}
}

// Hold says that an item has started already, or has kept what it holds while paused: after a restart of the daemon. It is held
// whether there is room or not; priority, time and sequence mean nothing.
func (q *Queue) Hold(item Item) {
	if h := q.held[item.ID]; h != nil && h.class == q.class(item.Lane, item.Limits) && h.key == q.key(item.Key) {
		return // it keeps its place among the holders
	}
	q.Leave(item.ID)
	q.take(item.ID, q.class(item.Lane, item.Limits), q.key(item.Key))
}

// Leave forgets an item, whether it waits, is held or is not known: it has ended, was paused, or is no longer due.
func (q *Queue) Leave(id statefs.ID) {
	if w := q.waiting[id]; w != nil {
		q.withdraw(w)
	}
	if h := q.held[id]; h != nil {
		q.release(h)
	}
}

// Next picks what starts now, if anything may; it is held from then on. Call it after every change until it says false, and again at the time that
// Wake names.
func (q *Queue) Next(now time.Time) (statefs.ID, bool) {
	var first *waiter // who has the best place
	var of *line      // the line in which that place counts
	for _, c := range q.classes {
		c.lane.rate.turnBack(now)
		if c.waiting == 0 || !c.open(now) {
			continue
		}
		if w := c.free.best(); w != nil && (first == nil || w.before(first)) {
			first, of = w, &c.free
		}
		if len(c.lines) > 0 {
			if w := c.lines[0].best(); first == nil || w.before(first) {
				first, of = w, c.lines[0]
			}
		}
	}
	if first == nil {
		return statefs.ID{}, false
	}
	if of.key != nil {
		first = of.key.turn(now)
	}
	l := first.class.lane
	l.rate.add(now, &l.set)
	q.take(first.id, first.class, first.line.key)
	q.withdraw(first)
	return first.id, true
}

// Wake returns the next time at which something may start although nothing else has changed: when the rate of a lane allows it. That time lies after now;
// false: there is nothing to wait for. It is meant for one timer, after the last call of Next.
func (q *Queue) Wake(now time.Time) (at time.Time, ok bool) {
	for _, c := range q.classes {
		if c.free.waiting.root == nil && len(c.lines) == 0 {
			continue
		}
		if h := c.hindrance(now); h.reason == Rate && (!ok || h.until.Before(at)) {
			at, ok = h.until, true
		}
	}
	return at, ok
}

// withdraw takes a waiter out of all trees.
func (q *Queue) withdraw(w *waiter) {
	delete(q.waiting, w.id)
	w.class.lane.waiting.remove(w)
	if k := w.line.key; k != nil {
		k.leave(w)
		q.forgetKey(k)
	} else {
		w.line.waiting.remove(w)
	}
	w.class.waiting--
	q.forgetClass(w.class)
}

// key returns the key of that name, nil for the empty one.
func (q *Queue) key(name string) *key {
	if name == "" {
		return nil
	}
	k := q.keys[name]
	if k == nil {
		k = &key{name: name}
		q.keys[name] = k
	}
	return k
}

func (q *Queue) forgetKey(k *key) {
	if k.lines == nil && k.holders == nil {
		delete(q.keys, k.name)
	}
}

// weight is the next of a fixed row of numbers without a pattern (xorshift), so that the same calls give the same trees.
func (q *Queue) weight() uint32 {
	q.random ^= q.random << 13
	q.random ^= q.random >> 17
	q.random ^= q.random << 5
	return q.random
}
