package indexheap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFirstIsTheLeast(t *testing.T) {
	t.Parallel()
	type element struct {
		value int
		index int32
	}
	rapid.Check(t, func(t *rapid.T) {
		h := New(func(a, b *element) bool { return a.value < b.value }, func(e *element) *int32 { return &e.index })
		all := make([]element, 10)
		in := make(map[*element]bool)
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			e := &all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			if rapid.Bool().Draw(t, "put") {
				e.value, in[e] = rapid.IntRange(0, 5).Draw(t, "value"), true
				h.Put(e)
			} else {
				delete(in, e)
				h.Remove(e)
			}
			if h.Len() != len(in) || len(h.All()) != len(in) || (h.First() == nil) != (len(in) == 0) {
				t.Fatalf("%d elements %v, first %v, want %d", h.Len(), h.All(), h.First(), len(in))
			}
			for e := range in {
				if e.value < h.First().value || !slices.Contains(h.All(), e) {
					t.Fatalf("%+v, and first is %+v of %v", e, h.First(), h.All())
				}
			}
		}
	})
}
