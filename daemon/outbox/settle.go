package outbox

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Settled ends a try after which the entry is finished: its target accepted or refused it, so the
// target is up. An entry that was put on hold during the try stays.
func (p *Plan) Settled(name statefs.EntryName) {
	p.finishTry(name, func(t *target, e *entry) {
		if e != nil {
			p.Forget(name)
		}
		if t.down {
			t.down, t.reason = false, ""
			p.changed = append(p.changed, t.state())
		}
	})
}

// Failed ends a try after which the entry waits again and its target is down. after is how long the
// target asks not to be contacted, 0 when it does not ask.
func (p *Plan) Failed(name statefs.EntryName, now time.Time, after time.Duration, reason string) {
	p.finishTry(name, func(t *target, e *entry) {
		if !t.probeRequested { // a try that began before a user's request proves nothing about the target since
			t.next = now.Add(max(p.probe+p.withJitter(p.probe), min(after, maxRetryAfter)))
		}
		t.reason = reason
		if e != nil {
			p.requeue(e)
		}
		if !t.down {
			t.down, t.since = true, now
			p.changed = append(p.changed, t.state())
		}
	})
}

// Defer ends a try that failed for a local reason, which proves nothing about the target: its other
// entries go on. This entry is retried later, each time after twice the delay.
func (p *Plan) Defer(name statefs.EntryName, now time.Time) {
	p.finishTry(name, func(_ *target, e *entry) {
		if e == nil {
			return
		}
		if e.retryAgain {
			p.requeue(e)
			return
		}
		wait := min(p.probe<<min(e.tries-1, 8), maxDeferral)
		e.state, e.due = Deferred, now.Add(wait+p.withJitter(wait)).UnixNano()
		p.deferred.add(e)
	})
}

// requeue makes an entry wait again after a try, before all others if a user asked for a retry
// during the try.
func (p *Plan) requeue(e *entry) {
	p.wait(e)
	if e.retryAgain {
		e.retryAgain = false
		e.target.putUrgent(e)
	}
}

func (p *Plan) withJitter(of time.Duration) time.Duration {
	return time.Duration(p.jitter() * probeJitter * float64(of))
}

// finishTry ends a try. then gets nil for an entry that was forgotten or put on hold during the
// try.
func (p *Plan) finishTry(name statefs.EntryName, then func(t *target, e *entry)) {
	t, e := p.trying[name], p.entries[name]
	delete(p.trying, name)
	t.busy--
	if e != nil && e.state != Busy {
		e = nil
	}
	then(t, e)
	p.tidy(t)
}

// Changes returns the targets that went down or came up since the last call.
func (p *Plan) Changes() []TargetState {
	changed := p.changed
	p.changed = nil
	return changed
}
