package queue

import (
	"time"
)

// key is a value that only one item at a time holds.
type key struct {
	name        string
	lines       *line            // one for each class in which an item waits for the key
	turnKeepers tree             // items that keep their turn without waiting, in order of submit
	holders     []*hold          // several only by Hold; the longest holder first
	best        *waiter          // the most urgent waiter, whose place counts for all
	first       *waiter          // the item whose turn it is, unless that depends on which may start
	orders      [keyOrders]int32 // how many waiters and turn keepers have each order
}

// line is all items of a class that wait for the same key, or for none.
type line struct {
	key     *key // nil: no key
	class   *class
	next    *line // of the same key, in another class
	waiting tree  // in order of submit; without a key by place
	index   int32 // in the heap of its class
}

// best returns the waiter whose place counts for the line.
func (l *line) best() *waiter {
	if l.key == nil {
		return l.waiting.first()
	}
	return l.key.best
}

// head returns the item of the line whose turn it is.
func (l *line) head() *waiter {
	if l.key == nil {
		return l.waiting.first()
	}
	return l.key.head(&l.waiting)
}

// order returns the order in which the items of the key start.
func (k *key) order() KeyOrder {
	for order, count := range k.orders {
		if count > 0 {
			return KeyOrder(order)
		}
	}
	return AnyOrder
}

// head returns the first item of a tree of the key, nil if it is empty.
func (k *key) head(t *tree) *waiter {
	if first := t.first(); first == nil || first.begun || k.order() != ByPriority {
		return first
	}
	return t.least()
}

// before is the order within the key.
func (k *key) before(a, b *waiter) bool {
	if k.order() == ByPriority && !a.begun && !b.begun {
		return a.moreUrgent(b)
	}
	return a.turnBefore(b)
}

// turn returns the item whose turn it is, among waiters and turn keepers. With AnyOrder it ignores items that
// cannot start, and returns nil if none can.
func (k *key) turn(now time.Time) (first *waiter) {
	if k.first != nil {
		return k.first
	}
	for l := k.lines; l != nil; l = l.next {
		if head := l.head(); (first == nil || k.before(head, first)) && l.class.open(now) {
			first = head
		}
	}
	return first
}

// enter adds w to the line of its class.
func (k *key) enter(w *waiter) {
	l := k.lines
	for l != nil && l.class != w.class {
		l = l.next
	}
	if l == nil {
		l = &line{key: k, class: w.class, next: k.lines, waiting: tree{order: inKey}}
		k.lines = l
	}
	w.line = l
	l.waiting.insert(w)
	k.orders[w.order]++
	k.settle()
}

// leave removes w from its line.
func (k *key) leave(w *waiter) {
	l := w.line
	l.waiting.remove(w)
	k.orders[w.order]--
	if l.waiting.root == nil {
		l.class.lines.Remove(l)
		at := &k.lines
		for *at != l {
			at = &(*at).next
		}
		*at = l.next
	}
	k.settle()
}

// settle moves the lines into or out of the heaps after a change. While the key is held, or a turn keeper has
// the turn, no line is in a heap. Otherwise the line of the item whose turn it is is in the heap of its
// class; with AnyOrder all lines are, and turn determines the item that starts. All lines have the place of
// the most urgent waiter of the key. So the best line of the best open class always leads to an item that may
// start.
func (k *key) settle() {
	k.best, k.first = nil, nil
	strict := k.order() != AnyOrder
	if strict {
		k.first = k.head(&k.turnKeepers)
	}
	for l := k.lines; l != nil; l = l.next {
		if best := l.waiting.least(); k.best == nil || best.moreUrgent(k.best) {
			k.best = best
		}
		if head := l.head(); strict && (k.first == nil || k.before(head, k.first)) {
			k.first = head
		}
	}
	if k.order() == ByPriority && k.orders[Arriving] > 0 { // the order may change, so nothing starts
		k.first = k.turnKeepers.first()
	}
	for l := k.lines; l != nil; l = l.next {
		switch {
		case len(k.holders) > 0, strict && k.first.line != l:
			l.class.lines.Remove(l)
		default:
			l.class.lines.Put(l)
		}
	}
}
