package queue

import (
	"math/rand/v2"
	"testing"
)

// A tree is shallow for every order of insertion, so that each search is short.
func TestTreesAreShallow(t *testing.T) {
	t.Parallel()
	const n, most = 20_000, 50 // 3.5 times the least possible
	for name, place := range map[string]func(i int) int64{
		"in order":        func(i int) int64 { return int64(i) },
		"in reverse":      func(i int) int64 { return int64(-i) },
		"all the same":    func(int) int64 { return 0 },
		"one of a few":    func(i int) int64 { return int64(i * 7919 % 5) },
		"from both sides": func(i int) int64 { return int64(i * (1 - i%2*2)) },
		"at random":       func(int) int64 { return rand.Int64() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, tr := New(0), tree{order: inLane}
			waiters := make([]waiter, n)
			for i := range waiters {
				waiters[i] = waiter{score: place(i), sequence: uint64(i), weight: q.nextWeight()}
				tr.insert(&waiters[i])
			}
			if deep := depth(tr.root); deep > most || tr.size() != n {
				t.Errorf("%d stand in a tree %d deep, want at most %d", tr.size(), deep, most)
			}
			for i := range n / 2 {
				tr.remove(&waiters[i*2])
			}
			if deep := depth(tr.root); deep > most || tr.size() != n/2 {
				t.Errorf("after half of them have gone, %d stand in a tree %d deep, want at most %d", tr.size(), deep, most)
			}
			last := 0
			for n := range tr.all() {
				if last++; last%997 == 0 && tr.position(n) != last {
					t.Errorf("number %d says that it is number %d", last, tr.position(n))
				}
			}
		})
	}
}

func depth(n *waiter) int {
	if n == nil {
		return 0
	}
	return 1 + max(depth(n.inLane.left), depth(n.inLane.right))
}

// all walks a tree of a lane in order.
func (t *tree) all() func(yield func(*waiter) bool) {
	return func(yield func(*waiter) bool) {
		var walk func(n *waiter) bool
		walk = func(n *waiter) bool {
			return n == nil || walk(n.inLane.left) && yield(n) && walk(n.inLane.right)
		}
		walk(t.root)
	}
}
