package queue

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// shapes are ways in which many can wait.
var shapes = map[string]func(i int, item *Item){
	"plain":      func(int, *Item) {},
	"priorities": func(i int, item *Item) { item.Priority = i * 7919 % 101 },
	"keys":       func(i int, item *Item) { item.Key = fmt.Sprint("key-", i) },
	"one key":    func(_ int, item *Item) { item.Key = "key" },
	"limits": func(i int, item *Item) {
		item.Limits = []string{fmt.Sprint("limit-", i%8)}
		item.Key = fmt.Sprint("key-", i/2) // each key waits in two classes
	},
}

// fill makes a queue with n that wait behind a lane with one place, and a function that makes more of them.
func fill(tb testing.TB, n int, shape func(int, *Item)) (*Queue, func() Item) {
	tb.Helper()
	q, made := New(0), 0
	q.SetLane("l", Lane{Capacity: 1})
	for i := range 8 {
		q.SetLimit(fmt.Sprint("limit-", i), 1)
	}
	next := func() Item {
		item := Item{
			ID: makeID(tb, "g-job", uint64(made+1)), Lane: "l",
			Since: noon.Add(time.Duration(made) * time.Millisecond),
		}
		shape(made, &item)
		made++
		return item
	}
	for range n {
		q.Enqueue(next())
	}
	return q, next
}

// BenchmarkStart is one operation on its way: it waits, another one starts and leaves, with so many that wait.
func BenchmarkStart(b *testing.B) {
	for name, shape := range shapes {
		for _, n := range []int{0, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				q, next := fill(b, n, shape)
				items := make([]Item, b.N)
				for i := range items {
					items[i] = next()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					q.Enqueue(items[i])
					id, ok := q.Next(noon)
					if !ok {
						b.Fatal("nothing starts")
					}
					if _, ok := q.Wake(noon); ok {
						b.Fatal("there is a time to wait for")
					}
					if _, ok := q.Next(noon); ok {
						b.Fatal("two start")
					}
					q.Remove(id)
				}
			})
		}
	}
}

// BenchmarkWhy measures Why for one of many waiting items.
func BenchmarkWhy(b *testing.B) {
	for name, shape := range shapes {
		for _, n := range []int{1, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				q, _ := fill(b, n, shape)
				first, _ := q.Next(noon)
				q.Enqueue(Item{ID: first, Lane: "l"})
				ids := make([]Item, 0, n)
				for id := range q.waiting {
					ids = append(ids, Item{ID: id})
				}
				b.ResetTimer()
				for i := range b.N {
					if w, ok := q.Why(ids[i%n].ID, noon); !ok || w.Position == 0 {
						b.Fatal(w)
					}
				}
			})
		}
	}
}

// BenchmarkFirst measures Heads with many waiting items.
func BenchmarkFirst(b *testing.B) {
	for name, shape := range shapes {
		for _, n := range []int{1, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				q, _ := fill(b, n, shape)
				for b.Loop() {
					if len(q.Heads()) == 0 {
						b.Fatal("nobody does")
					}
				}
			})
		}
	}
}

// A waiting item takes little memory besides the texts of its ID and key. Not parallel: it measures all
// memory.
func TestWaitingIsSmall(t *testing.T) {
	const n = 5_000
	for name, most := range map[string]int{"plain": 240, "priorities": 240, "keys": 390, "one key": 240, "limits": 320} {
		items := make([]Item, n)
		for i := range items {
			items[i] = Item{ID: makeID(t, "g-job", uint64(i+1)), Lane: "l", Since: noon}
			shapes[name](i, &items[i])
		}
		before := inUse()
		q := New(0)
		for _, item := range items {
			q.Enqueue(item)
		}
		each := int(inUse()-before) / n
		t.Logf("%s: %d bytes for each that waits", name, each)
		if each > most || q.Waiting() != n {
			t.Errorf("%s: %d bytes for each of %d that wait, want at most %d", name, each, q.Waiting(), most)
		}
		runtime.KeepAlive(items)
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
