package outbox

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// mostAsked bounds how many entries of one target stand before all others because somebody asked for them. Who asks for more at once means the target, and
// not each of them: the ones asked for last are tried, and the rest waits as before.
const mostAsked = 32

// Ask has an entry tried once as soon as there is a worker for it, however long its target is to be left alone, and whatever becomes of others there. Of
// several the one asked for last goes first. One that is being tried is tried once more when that fails.
func (p *Plan) Ask(name statefs.EntryName) {
	e := p.entries[name]
	if e == nil || e.target == nil {
		return
	}
	switch e.standing {
	case Busy:
		e.again = true
		return
	case Deferred:
		p.undefer(e)
	case Waiting:
		e.target.dismiss(e)
	case Unknown, Expected, Held:
		return
	}
	e.target.put(e)
}

// Prompt has the targets of entries tried with one entry each at once, also those that are down, and what was put off for a reason of our own.
func (p *Plan) Prompt(names []statefs.EntryName, now time.Time) {
	for _, name := range names {
		e := p.entries[name]
		if e == nil || e.target == nil {
			continue
		}
		if e.standing == Deferred {
			p.undefer(e)
		}
		e.target.next, e.target.prompted = now, true
	}
}

// undefer has an entry wait for its turn, and forgets how often it was put off.
func (p *Plan) undefer(e *entry) {
	p.later.remove(e)
	e.tries = 0
	p.wait(e)
}

// put has a waiting entry go before all others.
func (t *target) put(e *entry) {
	e.asked = true
	if t.asked = append(t.asked, e); len(t.asked) > mostAsked {
		t.dismiss(t.asked[0])
	}
}

// dismiss takes that back.
func (t *target) dismiss(e *entry) {
	if !e.asked {
		return
	}
	e.asked = false
	at := slices.Index(t.asked, e)
	t.asked = slices.Delete(t.asked, at, at+1)
}
