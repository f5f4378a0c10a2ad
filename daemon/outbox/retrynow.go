package outbox

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// maxUrgent bounds how many entries of one target go before all others because a user asked to
// retry them. A user who asks for more at once means the target, not each entry: the last ones
// requested are tried, and the rest wait as before.
const maxUrgent = 32

// RetryNow schedules one try of an entry as soon as a worker is free, even while its target is down
// or its other entries fail. Of several such entries, the last one requested goes first. An entry
// that is being tried is tried once more if that try fails.
func (p *Plan) RetryNow(name statefs.EntryName) {
	e := p.entries[name]
	if e == nil || e.target == nil {
		return
	}
	switch e.state {
	case Busy:
		e.retryAgain = true
		return
	case Deferred:
		p.undefer(e)
	case Waiting:
		e.target.dropUrgent(e)
	case Unknown, Expected, Held:
		return
	}
	e.target.putUrgent(e)
}

// ProbeNow schedules one try at each target of the entries at once, including targets that are
// down. It also ends the delay of the entries that are deferred.
func (p *Plan) ProbeNow(names []statefs.EntryName, now time.Time) {
	for _, name := range names {
		e := p.entries[name]
		if e == nil || e.target == nil {
			continue
		}
		if e.state == Deferred {
			p.undefer(e)
		}
		e.target.next, e.target.probeRequested = now, true
	}
}

// undefer makes a deferred entry wait for its turn, and resets its number of tries.
func (p *Plan) undefer(e *entry) {
	p.deferred.remove(e)
	e.tries = 0
	p.wait(e)
}

// putUrgent makes a waiting entry go before all others.
func (t *target) putUrgent(e *entry) {
	e.urgent = true
	if t.urgent = append(t.urgent, e); len(t.urgent) > maxUrgent {
		t.dropUrgent(t.urgent[0])
	}
}

// dropUrgent reverts putUrgent.
func (t *target) dropUrgent(e *entry) {
	if !e.urgent {
		return
	}
	e.urgent = false
	at := slices.Index(t.urgent, e)
	t.urgent = slices.Delete(t.urgent, at, at+1)
}
