package outbox

import (
	"slices"

	"github.com/jobdir/jobdir/statefs"
)

// waiter is somebody who waits for a try.
type waiter struct {
	begun bool // a try has begun since
	done  chan struct{}
}

// Await says when an entry was tried: done is closed when a try of it ends that begins from now on, when one that is under way settles it, and when it is
// forgotten. stop must be called once that is of no interest any more.
func (o *Outbox) Await(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	w := &waiter{done: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiters[name] = append(o.waiters[name], w)
	return w.done, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.release(name, func(other *waiter) bool { return other == w })
	}
}

// begin notes that a try of an entry begins. The caller holds the lock.
func (o *Outbox) begin(name statefs.EntryName) {
	for _, w := range o.waiters[name] {
		w.begun = true
	}
}

// release ends the waiting of those who wait for an entry and are chosen. The caller holds the lock.
func (o *Outbox) release(name statefs.EntryName, chosen func(*waiter) bool) {
	left := slices.DeleteFunc(o.waiters[name], func(w *waiter) bool {
		if !chosen(w) {
			return false
		}
		close(w.done)
		return true
	})
	if o.waiters[name] = left; len(left) == 0 {
		delete(o.waiters, name)
	}
}

func anyone(*waiter) bool { return true }
