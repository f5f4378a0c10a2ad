package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// drain is the state of Drain: no work starts, and the daemon waits for the work that runs.
type drain struct {
	check chan struct{} // an operation was reconciled since the last check

	mu      sync.Mutex
	drained chan struct{} // closed when nothing runs; nil until Drain is called
	done    bool
}

// Drain makes the daemon start no more work; new submits wait for the next daemon. The returned
// channel is closed when nothing runs: all work has ended or is paused. The daemon continues to
// serve requests.
func (d *Daemon) Drain() <-chan struct{} {
	d.drain.mu.Lock()
	if d.drain.drained == nil {
		d.drain.drained = make(chan struct{})
	}
	drained := d.drain.drained
	d.drain.mu.Unlock()
	d.reconcileQueue.wait() // a reconcile that started earlier may still start work
	d.drain.checkSoon()
	d.queueChanged()
	return drained
}

func (d *Daemon) draining() bool {
	d.drain.mu.Lock()
	defer d.drain.mu.Unlock()
	return d.drain.drained != nil
}

// checkSoon makes the daemon check whether work still runs.
func (n *drain) checkSoon() {
	n.mu.Lock()
	wanted := n.drained != nil && !n.done
	n.mu.Unlock()
	if !wanted {
		return
	}
	select {
	case n.check <- struct{}{}:
	default:
	}
}

// checkDrained closes the channel of Drain when nothing runs.
func (d *Daemon) checkDrained() {
	if d.States()[statefs.Running] > 0 {
		return
	}
	d.drain.mu.Lock()
	defer d.drain.mu.Unlock()
	if !d.drain.done {
		d.drain.done = true
		close(d.drain.drained)
	}
}
