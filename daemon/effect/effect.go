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
	"maps"
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
	mu   sync.Mutex
	byID map[statefs.ID]map[*Waiter]Request
}

// Waiter is one client that waits for the outcome of one request.
type Waiter struct {
	C chan Outcome // receives the final outcome, once

	soFar Outcome // guarded by all.mu
	all   *Waiters
	id    statefs.ID
	wake  func(statefs.ID)
}

// Request is what is known of the request of a waiter.
type Request struct {
	Action statefs.Action
	// Made means that its file was made. Before that, a request of the same action is that of another client.
	Made bool
	// CarriedOut means that a request with the same action and arguments was carried out.
	CarriedOut bool

	args       json.RawMessage
	noted      bool
	carriedOut []json.RawMessage // the arguments of the requests of the action that were carried out
}

// Await registers a client that is about to make a request, and that leaves afterwards. wake is called if an outcome
// may have been noted before the waiter knew that its file was made: Settle has to be called again then.
func (all *Waiters) Await(id statefs.ID, action statefs.Action, wake func(statefs.ID)) *Waiter {
	w := &Waiter{C: make(chan Outcome, 1), all: all, id: id, wake: wake}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID == nil {
		all.byID = make(map[statefs.ID]map[*Waiter]Request)
	}
	if all.byID[id] == nil {
		all.byID[id] = make(map[*Waiter]Request)
	}
	all.byID[id][w] = Request{Action: action}
	return w
}

// Made notes that the file of the request exists, with these arguments.
func (w *Waiter) Made(args json.RawMessage) {
	w.all.mu.Lock()
	r, waits := w.all.byID[w.id][w]
	if waits {
		r.args, r.Made = args, true
		w.all.byID[w.id][w] = r
	}
	w.all.mu.Unlock()
	if r.noted {
		w.wake(w.id)
	}
}

// SoFar returns the last outcome that was not final, the zero Outcome if there was none. If the request took effect,
// that may not be durable yet, as on a full disk.
func (w *Waiter) SoFar() Outcome {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	return w.soFar
}

// Leave ends the wait, and reports whether the client was still waiting.
func (w *Waiter) Leave() bool {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	waiting := w.all.byID[w.id]
	_, waited := waiting[w]
	if delete(waiting, w); len(waiting) == 0 {
		delete(w.all.byID, w.id)
	}
	return waited
}

// Note notes that a request with these arguments is dropped, carried out or not. A request that was replaced by
// another of its action, which is a file of the same name, was carried out if both have the same arguments. A later
// request does not take that back, except another priority.
func (all *Waiters) Note(id statefs.ID, action statefs.Action, args json.RawMessage, carriedOut bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for w, r := range all.byID[id] {
		if r.Action == action {
			if r.noted = true; carriedOut {
				if action == statefs.Prioritize {
					r.carriedOut = nil
				}
				r.carriedOut = append(r.carriedOut, args)
			}
			all.byID[id][w] = r
		}
	}
}

// Settle gives the waiters of an operation their outcomes. judge returns the outcome of one, and whether it is
// final. If it is not, the waiter goes on to wait, and has it as SoFar. judge is called without a lock.
func (all *Waiters) Settle(id statefs.ID, judge func(Request) (o Outcome, final bool)) {
	all.mu.Lock()
	waiting := maps.Clone(all.byID[id])
	all.mu.Unlock()
	for w, r := range waiting {
		r.CarriedOut = slices.ContainsFunc(r.carriedOut, func(args json.RawMessage) bool {
			return !r.Made || bytes.Equal(args, r.args)
		})
		switch o, final := judge(r); {
		case !final:
			all.mu.Lock()
			w.soFar = o
			all.mu.Unlock()
		case w.Leave():
			w.C <- o
		}
	}
}
