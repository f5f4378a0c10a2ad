package queue

// tree is a set of waiters in one order that also knows its least element by a second order. It is a treap: a
// search tree by the order and a heap by random weights, so that its depth is about 2 log n for any input.
// The links are fields of the waiters.
type tree struct {
	root  *waiter
	order order
}

// order is one of the kinds of tree.
type order uint8

const (
	inLane order = iota // by place; the least has waited longest
	inKey               // by submit; the least is the most urgent
	inFree              // by place; the least is the most urgent
)

// links are the links of a waiter in a tree.
type links struct {
	left, right *waiter
	least       *waiter // by the second order, of the subtree of this waiter
	size        int     // of the subtree of this waiter
}

// of returns the links of n in trees of this kind. A waiter is in the tree of its lane and in one other.
func (o order) of(n *waiter) *links {
	if o == inLane {
		return &n.inLane
	}
	return &n.inLine
}

// before is the order of the tree. It is total, so a search leads to exactly one waiter.
func (o order) before(a, b *waiter) bool {
	if o == inKey {
		return a.turnBefore(b)
	}
	return a.before(b)
}

// less is the second order.
func (o order) less(a, b *waiter) bool {
	if o == inLane {
		return a.since < b.since
	}
	return a.moreUrgent(b)
}

// insert adds w, which must not be in a tree of this order.
func (t *tree) insert(w *waiter) {
	*t.order.of(w) = links{least: w, size: 1}
	before, after := t.order.split(t.root, w)
	t.root = t.order.merge(t.order.merge(before, w), after)
}

// remove removes w, which must be in the tree.
func (t *tree) remove(w *waiter) {
	t.root = t.order.remove(t.root, w)
	*t.order.of(w) = links{}
}

// size is the number of waiters.
func (t *tree) size() int { return t.order.size(t.root) }

// least returns the least by the second order, nil when the tree is empty.
func (t *tree) least() *waiter {
	if t.root == nil {
		return nil
	}
	return t.order.of(t.root).least
}

// first returns the first in order, nil when the tree is empty.
func (t *tree) first() *waiter {
	n := t.root
	for n != nil && t.order.of(n).left != nil {
		n = t.order.of(n).left
	}
	return n
}

// position returns the 1-based position of w, which must be in the tree.
func (t *tree) position(w *waiter) int {
	passed := 0
	for n := t.root; ; {
		l := t.order.of(n)
		switch here := t.order.size(l.left) + 1; {
		case n == w:
			return passed + here
		case t.order.before(w, n):
			n = l.left
		default:
			passed += here
			n = l.right
		}
	}
}

func (o order) size(n *waiter) int {
	if n == nil {
		return 0
	}
	return o.of(n).size
}

// update recomputes size and least of n after a change below it.
func (o order) update(n *waiter) {
	l := o.of(n)
	l.size = 1 + o.size(l.left) + o.size(l.right)
	l.least = n
	for _, below := range [...]*waiter{l.left, l.right} {
		if below != nil && o.less(o.of(below).least, l.least) {
			l.least = o.of(below).least
		}
	}
}

// split splits the subtree of n into the waiters before w and those after it.
func (o order) split(n, w *waiter) (before, after *waiter) {
	if n == nil {
		return nil, nil
	}
	l := o.of(n)
	if o.before(n, w) {
		before = n
		l.right, after = o.split(l.right, w)
	} else {
		after = n
		before, l.left = o.split(l.left, w)
	}
	o.update(n)
	return before, after
}

func (o order) remove(n, w *waiter) *waiter {
	l := o.of(n)
	if n == w {
		return o.merge(l.left, l.right)
	}
	if o.before(w, n) {
		l.left = o.remove(l.left, w)
	} else {
		l.right = o.remove(l.right, w)
	}
	o.update(n)
	return n
}

// merge joins two trees; all waiters of a precede all of b.
func (o order) merge(a, b *waiter) *waiter {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight > b.weight:
		o.of(a).right = o.merge(o.of(a).right, b)
		o.update(a)
		return a
	}
	o.of(b).left = o.merge(a, o.of(b).left)
	o.update(b)
	return b
}
