// Package effect lets clients wait for what becomes of their requests.
//
//	client ─▶ Await ─▶ the file of the request ─▶ Made ─────────┐
//	                                                            ▼
//	daemon takes the file, carries it out ─▶ Note ─▶ Settle ─▶ Waiter.C
//
// A client registers before its request exists, so no outcome is missed. The daemon notes what came of each request
// of an operation when it drops it, and settles the waiters for which nothing more can come. Which those are the
// daemon decides. It works in memory only: no files, clock or goroutines.
package effect

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// Outcome is what became of a request. The operation has its state because of the request if it took effect.
type Outcome struct {
	TookEffect bool
	State      statefs.State // "" if the operation is gone
}

// Waiters are the clients that wait, at most one for each open connection. The zero value has none. It is safe for
// concurrent use.
type Waiters struct {
	mu   sync.Mutex // guards the waiters too
	byID map[statefs.ID][]*Waiter
}

// Waiter is one client that waits for the outcome of one request.
type Waiter struct {
	// C receives the outcome, once.
	C <-chan Outcome

	all     *Waiters
	id      statefs.ID
	outcome chan<- Outcome
	wake    func(statefs.ID)
	args    json.RawMessage
	noted   bool
	request Request
}

// Request is what is known of the request of a waiter.
type Request struct {
	Action statefs.Action
	// Made means that its file was made. Before that, a request of the same action is that of another client.
	Made bool
	// CarriedOut means that the last dropped request of the action was carried out, and asked for the same.
	CarriedOut bool
}

// Await registers a client that is about to make a request, and that leaves afterwards. wake is called if an outcome
// may have been noted before the waiter knew that its file was made: Settle has to be called again then.
func (all *Waiters) Await(id statefs.ID, action statefs.Action, wake func(statefs.ID)) *Waiter {
	outcome := make(chan Outcome, 1)
	w := &Waiter{C: outcome, all: all, id: id, outcome: outcome, wake: wake, request: Request{Action: action}}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID == nil {
		all.byID = make(map[statefs.ID][]*Waiter)
	}
	all.byID[id] = append(all.byID[id], w)
	return w
}

// Made notes that the file of the request exists, with these arguments. A nil Waiter ignores it.
func (w *Waiter) Made(args json.RawMessage) {
	if w == nil {
		return
	}
	w.all.mu.Lock()
	w.args, w.request.Made = args, true
	noted := w.noted
	w.all.mu.Unlock()
	if noted {
		w.wake(w.id)
	}
}

// Leave ends the wait. A nil Waiter ignores it.
func (w *Waiter) Leave() {
	if w == nil {
		return
	}
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	w.all.removeLocked(w)
}

// removeLocked reports whether w was still waiting.
func (all *Waiters) removeLocked(w *Waiter) bool {
	at := slices.Index(all.byID[w.id], w)
	if at < 0 {
		return false
	}
	if all.byID[w.id] = slices.Delete(all.byID[w.id], at, at+1); len(all.byID[w.id]) == 0 {
		delete(all.byID, w.id)
	}
	return true
}

// Note notes that a request with these arguments is dropped, carried out or not. A request that was replaced by
// another of its action, which is a file of the same name, was carried out if both have the same arguments.
func (all *Waiters) Note(id statefs.ID, action statefs.Action, args json.RawMessage, carriedOut bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, w := range all.byID[id] {
		if w.request.Action == action {
			w.noted, w.request.CarriedOut = true, carriedOut && (!w.request.Made || bytes.Equal(w.args, args))
		}
	}
}

// Settle gives the waiters of an operation their outcomes. judge returns the outcome of one, and whether it is
// final. It is called without a lock.
func (all *Waiters) Settle(id statefs.ID, judge func(Request) (o Outcome, final bool)) {
	all.mu.Lock()
	waiting := slices.Clone(all.byID[id])
	requests := make([]Request, len(waiting))
	for i, w := range waiting {
		requests[i] = w.request
	}
	all.mu.Unlock()
	for i, w := range waiting {
		o, final := judge(requests[i])
		if !final {
			continue
		}
		all.mu.Lock()
		if all.removeLocked(w) {
			w.outcome <- o
		}
		all.mu.Unlock()
	}
}
