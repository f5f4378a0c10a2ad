package trigger

import "github.com/jobdir/jobdir/daemon/submit"

// submitTurn orders submissions by file: submissions that share a key are submitted in the order of their files, and
// all others concurrently. Only one goroutine calls its methods.
type submitTurn struct {
	previous   <-chan struct{} // closed when all earlier submissions have registered their keys
	registered chan struct{}
	passed     bool // registered is closed
	done       chan struct{}
	// lastOfKey has the done of the last registered submission with each key. Turns share it: each uses it between
	// previous and registered.
	lastOfKey map[string]<-chan struct{}
}

// await registers the keys of the requests, and returns when all earlier submissions with one of
// these keys are done.
func (s *submitTurn) await(requests []submit.Request) {
	<-s.previous
	var before []<-chan struct{}
	for i := range requests {
		key, err := requests[i].Key()
		if err != nil || key == "" || s.lastOfKey[key] == s.done {
			continue
		}
		if last := s.lastOfKey[key]; last != nil {
			before = append(before, last)
		}
		s.lastOfKey[key] = s.done
	}
	close(s.registered)
	s.passed = true
	for _, done := range before {
		<-done
	}
}

// end is called when the submission is done or has failed.
func (s *submitTurn) end() {
	if !s.passed {
		s.await(nil)
	}
	close(s.done)
}
