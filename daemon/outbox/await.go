package outbox

import (
	"slices"

	"github.com/jobdir/jobdir/statefs"
)

// waiter waits for a try of an entry.
type waiter struct {
	begun bool // a try has begun since
	done  chan struct{}
}

// Await returns a channel that is closed when a try of the entry that begins after the call ends,
// when a try under way settles the entry, or when the entry is forgotten. The caller must call stop
// when it no longer waits.
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

// begin marks the waiters of an entry when a try of it begins. The caller holds the lock.
func (o *Outbox) begin(name statefs.EntryName) {
	for _, w := range o.waiters[name] {
		w.begun = true
	}
}

// release wakes the chosen waiters of an entry. The caller holds the lock.
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
