package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// drain is the time in which no work is begun any more and the daemon waits for what runs.
type drain struct {
	look chan struct{} // somebody has looked at an operation since

	mu      sync.Mutex
	drained chan struct{} // closed when nothing runs; nil until somebody drains
	over    bool
}

// Drain has the daemon begin no work any more; what is submitted waits for the next one. The channel is closed when nothing runs: all
// work has ended or is paused. The daemon serves all along.
func (d *Daemon) Drain() <-chan struct{} {
	d.drain.mu.Lock()
	if d.drain.drained == nil {
		d.drain.drained = make(chan struct{})
	}
	drained := d.drain.drained
	d.drain.mu.Unlock()
	d.looks.wait() // a look that began before may still start work
	d.drain.looked()
	d.waitingChanged()
	return drained
}

func (d *Daemon) draining() bool {
	d.drain.mu.Lock()
	defer d.drain.mu.Unlock()
	return d.drain.drained != nil
}

// looked has the daemon ask whether something still runs.
func (n *drain) looked() {
	n.mu.Lock()
	wanted := n.drained != nil && !n.over
	n.mu.Unlock()
	if !wanted {
		return
	}
	select {
	case n.look <- struct{}{}:
	default:
	}
}

// noteDrained closes the channel of Drain when nothing runs.
func (d *Daemon) noteDrained() {
	for _, op := range d.all() {
		if op.shown.Load() == statefs.Running {
			return
		}
	}
	d.drain.mu.Lock()
	defer d.drain.mu.Unlock()
	if !d.drain.over {
		d.drain.over = true
		close(d.drain.drained)
	}
}
