package trigger

import (
	"sync"

	"github.com/jobdir/jobdir/daemon/submit"
)

// submitTurns orders submissions by file: submissions that share a key are submitted in the order
// of their files, and all others concurrently.
type submitTurns struct {
	mu          sync.Mutex
	advanced    *sync.Cond // on mu; nil while nothing waits
	next        int        // number of the submission that registers its keys next
	passedEarly map[int]bool
	lastOfKey   map[string]chan struct{} // per key: closed when the last registered submission is done
}

// submitTurn is one of several submissions. Only one goroutine calls its methods.
type submitTurn struct {
	turns  *submitTurns
	number int
	passed bool
	done   chan struct{} // nil if it has no key
}

// await registers the keys of the requests, and returns when all earlier submissions with one of
// these keys are done.
func (s *submitTurn) await(requests []submit.Request) {
	keys := make(map[string]bool)
	for i := range requests {
		if key, err := requests[i].Key(); err == nil && key != "" {
			keys[key] = true
		}
	}
	if len(keys) == 0 {
		s.pass()
		return
	}
	t := s.turns
	t.mu.Lock()
	for t.next < s.number {
		if t.advanced == nil {
			t.advanced = sync.NewCond(&t.mu)
		}
		t.advanced.Wait()
	}
	s.done = make(chan struct{})
	var before []chan struct{}
	for key := range keys {
		if last := t.lastOfKey[key]; last != nil {
			before = append(before, last)
		}
		t.lastOfKey[key] = s.done
	}
	t.mu.Unlock()
	s.pass()
	for _, done := range before {
		<-done
	}
}

// pass lets the next submission register its keys.
func (s *submitTurn) pass() {
	if s.passed {
		return
	}
	s.passed = true
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passedEarly == nil {
		t.passedEarly = make(map[int]bool)
	}
	t.passedEarly[s.number] = true
	for t.passedEarly[t.next] {
		delete(t.passedEarly, t.next)
		t.next++
	}
	if t.advanced != nil {
		t.advanced.Broadcast()
	}
}

// end is called when the submission is done or has failed.
func (s *submitTurn) end() {
	s.pass()
	if s.done != nil {
		close(s.done)
	}
}
