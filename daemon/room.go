package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// room bounds how many operations wait. What was let in counts from that moment on, and not only when its look finds it: submits that
// come at the same moment cannot go beyond the bound together.
type room struct {
	mu      sync.Mutex // held while an operation that was let in becomes one that is counted
	letIn   []letIn    // and not seen yet, oldest first
	unseen  int        // how many that are
	waiting func() int // those that were seen
}

type letIn struct {
	count int
	at    time.Duration // by how long the daemon has run
}

// lostAfter is when a submit that was let in and is not seen must have failed.
const lostAfter = time.Minute

// take lets n operations in, unless more than most would wait then; it returns how many do.
func (r *room) take(n, most int, ran time.Duration) (waiting int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.letIn) > 0 && ran-r.letIn[0].at >= lostAfter {
		r.unseen -= r.letIn[0].count
		r.letIn = r.letIn[1:]
	}
	waiting = r.waiting() + r.unseen
	if most > 0 && waiting+n > most {
		return waiting, false
	}
	r.letIn = append(r.letIn, letIn{n, ran})
	r.unseen += n
	return waiting + n, true
}

// came has count called, by which an operation is counted among those that wait; fresh says that it was let in.
func (r *room) came(fresh bool, count func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count()
	if !fresh || len(r.letIn) == 0 {
		return
	}
	r.unseen--
	if r.letIn[0].count--; r.letIn[0].count == 0 {
		r.letIn = r.letIn[1:]
	}
}

// waitingNow is how many operations wait for their time or their turn, those that are to be tried again among them: all that will start by
// itself. What a person holds back, paused or failed_manual, does not count.
func (d *Daemon) waitingNow() int {
	states := d.States()
	return states[statefs.Queued] + states[statefs.Scheduled] + states[statefs.FailedRetryable]
}
