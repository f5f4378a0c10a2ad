// Package indexheap is a heap whose elements keep their index in it, so that each of them can be removed, or moved when
// it has changed, without a search. What the elements are, and their order, the caller decides.
package indexheap

import "container/heap"

// Heap is a heap of elements. It is not safe for concurrent use.
type Heap[T any] struct {
	list  []*T
	less  func(a, b *T) bool
	index func(*T) *int32 // one more than the index in list, 0 while the element is not in the heap
}

// New returns an empty heap. less is its order, and index returns where an element keeps its index for the heap: 0 at
// first, and changed by the heap alone.
func New[T any](less func(a, b *T) bool, index func(*T) *int32) Heap[T] {
	return Heap[T]{less: less, index: index}
}

// First returns the first element, nil if the heap is empty.
func (h *Heap[T]) First() *T {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// All returns the elements, in no order. They are valid until the heap is changed.
func (h *Heap[T]) All() []*T { return h.list }

// Put adds an element, or moves it to the place that it has after a change.
func (h *Heap[T]) Put(e *T) {
	if i := *h.index(e); i > 0 {
		heap.Fix(h, int(i-1))
	} else {
		heap.Push(h, e)
	}
}

// Remove removes an element if it is in the heap.
func (h *Heap[T]) Remove(e *T) {
	if i := *h.index(e); i > 0 {
		heap.Remove(h, int(i-1))
	}
}

// Len returns how many elements there are.
func (h *Heap[T]) Len() int { return len(h.list) }

// Less implements heap.Interface.
func (h *Heap[T]) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

// Swap implements heap.Interface.
func (h *Heap[T]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.index(h.list[i]), *h.index(h.list[j]) = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (h *Heap[T]) Push(x any) {
	e, _ := x.(*T) // Put pushes nothing else
	h.list = append(h.list, e)
	*h.index(e) = int32(len(h.list))
}

// Pop implements heap.Interface.
func (h *Heap[T]) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	*h.index(e) = 0
	return e
}
