package queue

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Queue holds all operations that wait to start and all that have started. It is not safe for concurrent use,
// except that Why, FrontPriority, Heads, Wake, Waiting, Lane, Lanes and Limits only read and may run
// concurrently with each other.
type Queue struct {
	ageing      time.Duration
	lanes       map[string]*lane
	limits      map[string]*limit
	keys        map[string]*key
	classes     []*class
	waiting     map[statefs.ID]*waiter
	turnKeepers map[statefs.ID]*turnKeeper
	held        map[statefs.ID]*hold
	random      uint32
}

// New makes an empty queue without lanes. ageing is the waiting time that is worth one point of priority; with 0
// only the priority counts, and low priorities may wait for ever.
func New(ageing time.Duration) *Queue {
	return &Queue{
		ageing:      ageing,
		lanes:       map[string]*lane{},
		limits:      map[string]*limit{},
		keys:        map[string]*key{},
		waiting:     map[statefs.ID]*waiter{},
		turnKeepers: map[statefs.ID]*turnKeeper{},
		held:        map[statefs.ID]*hold{},
		random:      1,
	}
}

// Enqueue adds an item that is ready to start. It updates an item that waits already: its priority, its lane,
// any field. An item that is held releases everything and waits again.
func (q *Queue) Enqueue(item Item) {
	q.Remove(item.ID)
	w := q.waiter(&item)
	w.class = q.class(item.Lane, item.Limits)
	q.enter(w, q.key(item.Key))
}

func (q *Queue) waiter(item *Item) *waiter {
	w := &waiter{
		id: item.ID, since: nanoseconds(item.Since), sequence: item.Sequence, weight: q.nextWeight(),
		order: item.KeyOrder, begun: item.Begun && item.Key != "" && item.KeyOrder != AnyOrder,
	}
	w.score = score(item.Priority, w.since, q.ageing)
	if w.sequence == 0 {
		w.sequence = item.ID.Sequence()
	}
	return w
}

// enter adds a waiter to all trees.
func (q *Queue) enter(w *waiter, k *key) {
	q.waiting[w.id] = w
	w.class.waiting++
	w.class.lane.waiting.insert(w)
	if k != nil {
		k.enter(w)
	} else {
		w.line = &w.class.free
		w.line.waiting.insert(w)
	}
}

// turnKeeper is an item that keeps its turn for a key.
type turnKeeper struct {
	waiter
	key *key
}

// KeepTurn marks an item that cannot start but keeps its turn for its key: it is paused, not due, or not yet
// fully known. It waits in no lane. Without a key, or with AnyOrder, KeepTurn does the same as Remove.
func (q *Queue) KeepTurn(item Item) {
	q.Remove(item.ID)
	if item.Key == "" || item.KeyOrder == AnyOrder {
		return
	}
	w := &turnKeeper{*q.waiter(&item), q.key(item.Key)}
	q.turnKeepers[w.id] = w
	w.key.turnKeepers.insert(&w.waiter)
	w.key.orders[w.order]++
	w.key.settle()
}

// Hold marks an item as started, or as paused while it keeps its places. It succeeds even without free
// places; priority, time and sequence are ignored. It confirms a start that Next has made.
func (q *Queue) Hold(item Item) {
	if h := q.held[item.ID]; h != nil && h.class == q.class(item.Lane, item.Limits) && h.key == q.key(item.Key) {
		h.start = nil
		return // it keeps its position among the holders
	}
	q.Remove(item.ID)
	q.take(item.ID, q.class(item.Lane, item.Limits), q.key(item.Key))
}

// Remove removes an item that waits, is held or keeps its turn: it has ended, was paused, or is no longer
// due. Unknown items are ignored.
func (q *Queue) Remove(id statefs.ID) {
	if w := q.waiting[id]; w != nil {
		q.withdraw(w)
	}
	if w := q.turnKeepers[id]; w != nil {
		delete(q.turnKeepers, id)
		w.key.turnKeepers.remove(&w.waiter)
		w.key.orders[w.order]--
		w.key.settle()
		q.forgetKey(w.key)
	}
	if h := q.held[id]; h != nil {
		q.release(h)
	}
}

// UndoStart reverts a start that Next has made and the caller did not carry out: the item waits again as
// before, and the start does not count against the rate of its lane. It reports whether there was such a
// start.
func (q *Queue) UndoStart(id statefs.ID) bool {
	h := q.held[id]
	if h == nil || h.start == nil {
		return false
	}
	w := h.start
	w.class.lane.rate.drop(h.at)
	w.class.waiting++ // release must not drop the class
	k := h.key
	q.release(h)
	w.class.waiting--
	if k != nil {
		k = q.key(k.name)
	}
	q.enter(w, k)
	return true
}

// Next picks the item that starts now, if any; the item is held from then on. Call Next after every change
// until it returns false, and again at the time that Wake returns.
func (q *Queue) Next(now time.Time) (statefs.ID, bool) {
	first, of := q.best(now)
	if first == nil {
		return statefs.ID{}, false
	}
	if of.key != nil {
		first = of.key.turn(now)
	}
	l := first.class.lane
	l.rate.add(now, &l.set)
	h := q.take(first.id, first.class, first.line.key)
	h.start, h.at = first, now
	q.withdraw(first)
	return first.id, true
}

// TryStart starts an item without a key at once, as Enqueue and Next would. It returns false and changes nothing if the
// item has to wait, or if another item is to start first.
func (q *Queue) TryStart(item Item, now time.Time) bool {
	q.Enqueue(item)
	if first, _ := q.best(now); first == nil || first.id != item.ID {
		q.Remove(item.ID)
		return false
	}
	_, started := q.Next(now)
	return started
}

// Ready reports whether Next would return an item.
func (q *Queue) Ready(now time.Time) bool {
	first, _ := q.best(now)
	return first != nil
}

// best returns the item with the best place of all that may start, or nil, and the line in which that place
// counts.
func (q *Queue) best(now time.Time) (first *waiter, of *line) {
	for _, c := range q.classes {
		c.lane.rate.clampFuture(now)
		if c.waiting == 0 || !c.open(now) {
			continue
		}
		if w := c.free.best(); w != nil && (first == nil || w.before(first)) {
			first, of = w, &c.free
		}
		if l := c.lines.First(); l != nil && (first == nil || l.best().before(first)) {
			first, of = l.best(), l
		}
	}
	return first, of
}

// Wake returns the next time, after now, at which the rate of a lane allows a start without any other change;
// false if there is none. It serves a single timer that the caller sets after the last call of Next.
func (q *Queue) Wake(now time.Time) (at time.Time, ok bool) {
	for _, c := range q.classes {
		if c.free.waiting.root == nil && c.lines.Len() == 0 {
			continue
		}
		if h := c.blocker(now); h.reason == statefs.WaitsForRate && (!ok || h.until.Before(at)) {
			at, ok = h.until, true
		}
	}
	return at, ok
}

// withdraw removes a waiter from all trees.
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

// key returns the key with a name, nil for the empty name.
func (q *Queue) key(name string) *key {
	if name == "" {
		return nil
	}
	k := q.keys[name]
	if k == nil {
		k = &key{name: name, turnKeepers: tree{order: inKey}}
		q.keys[name] = k
	}
	return k
}

func (q *Queue) forgetKey(k *key) {
	if k.lines == nil && len(k.holders) == 0 && k.turnKeepers.root == nil {
		delete(q.keys, k.name)
	}
}

// nextWeight returns the next number of a fixed pseudo-random sequence (xorshift), so that the same calls
// build the same trees.
func (q *Queue) nextWeight() uint32 {
	q.random ^= q.random << 13
	q.random ^= q.random >> 17
	q.random ^= q.random << 5
	return q.random
}
