package outbox

import (
	"cmp"
	"container/heap"
)

// entryHeap is a heap of entries. Each entry knows its index in it.
type entryHeap struct {
	list []*entry
	less func(a, b *entry) bool
}

// fewerTries orders by number of tries, then by order of arrival.
func fewerTries(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.tries, b.tries), cmp.Compare(a.sequence, b.sequence)) < 0
}

// sooner orders by due time, then by order of arrival.
func sooner(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.sequence, b.sequence)) < 0
}

// first returns the entry at the top, nil when the heap is empty.
func (l *entryHeap) first() *entry {
	if len(l.list) == 0 {
		return nil
	}
	return l.list[0]
}

// newest returns the latest of the entries that have as few tries as the first; nil when the heap
// is empty.
func (l *entryHeap) newest() *entry {
	last := l.first()
	for _, e := range l.list {
		if e.tries == last.tries && e.sequence > last.sequence {
			last = e
		}
	}
	return last
}

func (l *entryHeap) add(e *entry)    { heap.Push(l, e) }
func (l *entryHeap) remove(e *entry) { heap.Remove(l, int(e.index)) }

// Len implements heap.Interface.
func (l *entryHeap) Len() int { return len(l.list) }

// Less implements heap.Interface.
func (l *entryHeap) Less(i, j int) bool { return l.less(l.list[i], l.list[j]) }

// Swap implements heap.Interface.
func (l *entryHeap) Swap(i, j int) {
	l.list[i], l.list[j] = l.list[j], l.list[i]
	l.list[i].index, l.list[j].index = int32(i), int32(j)
}

// Push implements heap.Interface.
func (l *entryHeap) Push(x any) {
	e, _ := x.(*entry)
	e.index = int32(len(l.list))
	l.list = append(l.list, e)
}

// Pop implements heap.Interface.
func (l *entryHeap) Pop() any {
	last := len(l.list) - 1
	e := l.list[last]
	l.list[last] = nil
	l.list = l.list[:last]
	return e
}
