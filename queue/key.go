package queue

import (
	"container/heap"
	"time"
)

// key is a value of which one item is held at a time.
type key struct {
	name    string
	lines   *line   // one for each class in which somebody waits for it
	holders *hold   // more than one only by Hold; who has held longest first
	best    *waiter // the most urgent of all that wait for it, whose place counts for them
	plain   int     // how many of them want the order of submit
}

// line is all items of one class that wait for one key, or for none.
type line struct {
	key     *key // nil: no key
	class   *class
	next    *line // of the same key, in another class
	waiting tree  // in order of submit
	at      int   // place in the heap of its class
}

// withdrawn is the place of a line that is in no heap.
const withdrawn = -1

// best is whose place counts for the line.
func (l *line) best() *waiter {
	if l.key == nil {
		return l.waiting.least()
	}
	return l.key.best
}

// head is whose turn it is in the line.
func (l *line) head() *waiter {
	if l.key != nil && l.key.plain > 0 {
		return l.waiting.first()
	}
	return l.waiting.least()
}

// before is the order within the key.
func (k *key) before(a, b *waiter) bool {
	if k.plain > 0 {
		return a.submittedBefore(b)
	}
	return a.moreUrgent(b)
}

// turn is whose turn it is of all that wait for the key and could start but for it; nil when nobody could.
func (k *key) turn(now time.Time) (first *waiter) {
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
		l = &line{key: k, class: w.class, next: k.lines, waiting: tree{order: inKey}, at: withdrawn}
		k.lines = l
	}
	w.line = l
	l.waiting.insert(w)
	if w.plain {
		k.plain++
	}
	k.settle()
}

// leave takes w out of its line.
func (k *key) leave(w *waiter) {
	l := w.line
	l.waiting.remove(w)
	if w.plain {
		k.plain--
	}
	if l.waiting.root == nil {
		l.withdraw()
		at := &k.lines
		for *at != l {
			at = &(*at).next
		}
		*at = l.next
	}
	k.settle()
}

// settle puts the lines where they belong after a change: out of the heaps while the key is held, otherwise by the place of the most urgent that
// waits for it. That place is the same for all lines, whether their classes are open or not: so the best line of the best open class
// always leads to one that may start.
func (k *key) settle() {
	k.best = nil
	for l := k.lines; l != nil; l = l.next {
		if best := l.waiting.least(); k.best == nil || best.moreUrgent(k.best) {
			k.best = best
		}
	}
	for l := k.lines; l != nil; l = l.next {
		switch {
		case k.holders != nil:
			l.withdraw()
		case l.at == withdrawn:
			heap.Push(&l.class.lines, l)
		default:
			heap.Fix(&l.class.lines, l.at)
		}
	}
}

func (l *line) withdraw() {
	if l.at != withdrawn {
		heap.Remove(&l.class.lines, l.at)
	}
}

// lineHeap is a heap for container/heap, of lines of different keys.
type lineHeap []*line

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].key.best.before(h[j].key.best) }
func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is for container/heap.
func (h *lineHeap) Push(x any) {
	if l, ok := x.(*line); ok {
		l.at = len(*h)
		*h = append(*h, l)
	}
}

// Pop is for container/heap.
func (h *lineHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.at = withdrawn
	return l
}
