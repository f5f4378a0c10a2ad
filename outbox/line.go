package outbox

import (
	"cmp"
	"container/heap"
)

// line is a heap of entries, each of which knows its place in it.
type line struct {
	list []*entry
	less func(a, b *entry) bool
}

// fewerTries puts those first that were tried less, then as they came.
func fewerTries(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.tries, b.tries), cmp.Compare(a.sequence, b.sequence)) < 0
}

// sooner puts those first that are due first.
func sooner(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.sequence, b.sequence)) < 0
}

// first returns the entry that is to go first, nil when there is none.
func (l *line) first() *entry {
	if len(l.list) == 0 {
		return nil
	}
	return l.list[0]
}

// newest returns, of the entries that were tried as little as the first, the one that came last; nil when there is none.
func (l *line) newest() *entry {
	last := l.first()
	for _, e := range l.list {
		if e.tries == last.tries && e.sequence > last.sequence {
			last = e
		}
	}
	return last
}

func (l *line) add(e *entry)    { heap.Push(l, e) }
func (l *line) remove(e *entry) { heap.Remove(l, int(e.index)) }

// Len is of heap.Interface.
func (l *line) Len() int { return len(l.list) }

// Less is of heap.Interface.
func (l *line) Less(i, j int) bool { return l.less(l.list[i], l.list[j]) }

// Swap is of heap.Interface.
func (l *line) Swap(i, j int) {
	l.list[i], l.list[j] = l.list[j], l.list[i]
	l.list[i].index, l.list[j].index = int32(i), int32(j)
}

// Push is of heap.Interface.
func (l *line) Push(x any) {
	e, _ := x.(*entry)
	e.index = int32(len(l.list))
	l.list = append(l.list, e)
}

// Pop is of heap.Interface.
func (l *line) Pop() any {
	last := len(l.list) - 1
	e := l.list[last]
	l.list[last] = nil
	l.list = l.list[:last]
	return e
}
