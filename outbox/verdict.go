package outbox

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Settled says that an entry which was tried is done with: its target took or refused it, so it can be reached. One that is held by now
// stays.
func (p *Plan) Settled(name statefs.EntryName) {
	p.tried(name, func(t *target, e *entry) {
		if e != nil {
			p.Forget(name)
		}
		if t.down {
			t.down, t.reason = false, ""
			p.changed = append(p.changed, t.state())
		}
	})
}

// Failed says that an entry which was tried goes back, and its target is down; after is how long the target asks to be left alone, 0
// when it does not.
func (p *Plan) Failed(name statefs.EntryName, now time.Time, after time.Duration, reason string) {
	p.tried(name, func(t *target, e *entry) {
		if !t.prompted { // a try that is older than what somebody asked for says nothing of the target since
			t.next = now.Add(max(p.probe+p.chance(p.probe), min(after, maxRetryAfter)))
		}
		t.reason = reason
		if e != nil {
			p.goBack(e)
		}
		if !t.down {
			t.down, t.since = true, now
			p.changed = append(p.changed, t.state())
		}
	})
}

// Defer says that an entry could not be tried for a reason of our own, which says nothing of its target: the others go on, and this one
// is tried again later, each time after twice as long.
func (p *Plan) Defer(name statefs.EntryName, now time.Time) {
	p.tried(name, func(_ *target, e *entry) {
		if e == nil {
			return
		}
		if e.again {
			p.goBack(e)
			return
		}
		wait := min(p.probe<<min(e.tries-1, 8), maxDeferral)
		e.standing, e.due = Deferred, now.Add(wait+p.chance(wait)).UnixNano()
		p.later.add(e)
	})
}

// goBack has an entry that was tried wait again, before all others when somebody has asked for it meanwhile.
func (p *Plan) goBack(e *entry) {
	p.wait(e)
	if e.again {
		e.again = false
		e.target.put(e)
	}
}

func (p *Plan) chance(of time.Duration) time.Duration {
	return time.Duration(p.jitter() * probeJitter * float64(of))
}

// tried ends a try; then gets nil for an entry that was forgotten, or is held, meanwhile.
func (p *Plan) tried(name statefs.EntryName, then func(t *target, e *entry)) {
	t, e := p.trying[name], p.entries[name]
	delete(p.trying, name)
	t.busy--
	if e != nil && e.standing != Busy {
		e = nil
	}
	then(t, e)
	p.tidy(t)
}

// Changes returns the targets that went down or came up since it was asked last.
func (p *Plan) Changes() []TargetState {
	changed := p.changed
	p.changed = nil
	return changed
}
