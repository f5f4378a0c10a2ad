package outbox

import (
	"cmp"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

const (
	// ProbeInterval is the least time between two tries at a target that is down, unless Config says another.
	ProbeInterval = 15 * time.Second
	// probeJitter is by how much of the interval a probe may be later, so that many daemons do not come at once.
	probeJitter = 0.2
	// maxRetryAfter bounds what a target may ask for.
	maxRetryAfter = time.Hour
	// maxDeferral bounds how long an entry is left alone of which something on our side is wrong.
	maxDeferral = 5 * time.Minute
)

// Destination is what entries have in common that go to the same target.
type Destination struct {
	// Key tells targets apart. It may hold a secret, so nobody is shown it; Label is what people are shown.
	Key, Label string
}

// Standing is how far an entry is.
type Standing uint8

// The standings of an entry.
const (
	Unknown  Standing = iota
	Expected          // its end is not durable yet: it is not tried
	Waiting           // for its turn
	Busy              // it is being tried
	Deferred          // something on our side was wrong with it: it is tried again by itself
	Held              // it waits for a person
)

// Plan says which entry is tried next, and knows all that there are. It is not safe for concurrent use.
type Plan struct {
	limit, perTarget int
	probe            time.Duration
	jitter           func() float64
	targets          map[string]*target
	entries          map[statefs.EntryName]*entry
	trying           map[statefs.EntryName]*target
	later            line // the deferred ones
	sequence         uint64
	changed          []TargetState // targets that went down or came up since Changes
}

// target is where entries go.
type target struct {
	Destination
	waiting  line
	count    int // of the entries that name it
	busy     int
	down     bool
	since    time.Time // when it went down
	reason   string    // why it is down
	next     time.Time // of the next probe while it is down
	probes   int       // every other one takes the newest, so that entries which the target never takes do not keep back what it would
	prompted bool      // somebody asked for a try of it, and none has begun since
	asked    []*entry  // the waiting ones that somebody asked for, the last one at the end
	served   uint64    // when it had its last turn, for taking turns
}

type entry struct {
	name     statefs.EntryName
	target   *target // nil while it is expected or held
	label    string
	sequence uint64
	created  int64 // Unix time in nanoseconds
	due      int64 // the same, of one that is deferred
	tries    int32
	index    int32 // in its line
	standing Standing
	asked    bool // it is among those of its target
	again    bool // somebody asked for it while it was tried
}

// NewPlan makes an empty plan for at most limit deliveries at once, perTarget of them at one target. jitter gives chance, from 0 to 1.
func NewPlan(limit, perTarget int, jitter func() float64) *Plan {
	return &Plan{
		limit: limit, perTarget: perTarget, probe: ProbeInterval, jitter: jitter, targets: make(map[string]*target),
		entries: make(map[statefs.EntryName]*entry), trying: make(map[statefs.EntryName]*target), later: line{less: sooner},
	}
}

// Standing says how far an entry is.
func (p *Plan) Standing(name statefs.EntryName) Standing {
	if e := p.entries[name]; e != nil {
		return e.standing
	}
	return Unknown
}

// Expect notes an entry that is on the disk before its end is durable.
func (p *Plan) Expect(name statefs.EntryName, created time.Time) {
	if p.entries[name] == nil {
		p.entries[name] = &entry{name: name, created: created.UnixNano(), standing: Expected}
	}
}

// Add has an entry be tried; one that is tried already stays as it is.
func (p *Plan) Add(name statefs.EntryName, at Destination, created time.Time) {
	e := p.entries[name]
	if e != nil && e.target != nil {
		return
	}
	if e == nil {
		e = &entry{name: name}
		p.entries[name] = e
	}
	t := p.targets[at.Key]
	if t == nil {
		t = &target{Destination: at, waiting: line{less: fewerTries}}
		p.targets[at.Key] = t
	}
	p.sequence++
	e.target, e.label, e.sequence, e.created, e.tries, e.again = t, t.Label, p.sequence, created.UnixNano(), 0, false
	t.count++
	if p.trying[name] != nil { // it was forgotten meanwhile: how that try ends counts
		e.standing = Busy
		return
	}
	p.wait(e)
}

func (p *Plan) wait(e *entry) {
	e.standing = Waiting
	e.target.waiting.add(e)
}

// Hold notes that an entry waits for a person. label is that of its target.
func (p *Plan) Hold(name statefs.EntryName, label string, created time.Time) {
	e := p.entries[name]
	if e == nil {
		e = &entry{name: name, created: created.UnixNano()}
		p.entries[name] = e
	}
	p.detach(e)
	e.label, e.standing = label, Held
}

// Forget notes that an entry is gone.
func (p *Plan) Forget(name statefs.EntryName) {
	if e := p.entries[name]; e != nil {
		p.detach(e)
		delete(p.entries, name)
	}
}

// detach takes an entry away from its target.
func (p *Plan) detach(e *entry) {
	t := e.target
	if t == nil {
		return
	}
	switch e.standing {
	case Waiting:
		t.dismiss(e)
		t.waiting.remove(e)
	case Deferred:
		p.later.remove(e)
	case Unknown, Expected, Busy, Held:
	}
	e.target = nil
	t.count--
	p.tidy(t)
}

// tidy forgets a target of which nothing is left. One that is down and comes back with the next entry is probed then, which costs one try.
func (p *Plan) tidy(t *target) {
	if t.count == 0 && t.busy == 0 && p.targets[t.Key] == t {
		delete(p.targets, t.Key)
	}
}

// Next gives an entry to be tried now, until Settled, Failed or Defer says how that went; false when there is none.
func (p *Plan) Next(now time.Time) (statefs.EntryName, bool) {
	if len(p.trying) >= p.limit {
		return statefs.EntryName{}, false
	}
	for e := p.later.first(); e != nil && e.due <= now.UnixNano(); e = p.later.first() {
		p.later.remove(e)
		p.wait(e)
	}
	var best *target
	for _, t := range p.targets {
		if p.open(t, now) && (best == nil || t.before(best)) {
			best = t
		}
	}
	if best == nil {
		return statefs.EntryName{}, false
	}
	e := best.take()
	e.tries++
	e.standing = Busy
	p.sequence++
	best.served = p.sequence
	best.busy++
	p.trying[e.name] = best
	return e.name, true
}

// before says which of two targets has its turn first: the one at which somebody asked for an entry, then the one that was served less lately.
func (t *target) before(other *target) bool {
	if asked := len(t.asked) > 0; asked != (len(other.asked) > 0) {
		return asked
	}
	return cmp.Or(cmp.Compare(t.served, other.served), cmp.Compare(t.Key, other.Key)) < 0
}

// take takes the entry that is to be tried next from those that wait.
func (t *target) take() *entry {
	e := t.waiting.first()
	switch {
	case len(t.asked) > 0:
		e = t.asked[len(t.asked)-1]
	case t.down:
		if t.probes++; t.probes%2 == 0 {
			e = t.waiting.newest()
		}
	}
	t.dismiss(e)
	t.waiting.remove(e)
	t.prompted = false
	return e
}

// open says whether a target may be given something.
func (p *Plan) open(t *target, now time.Time) bool {
	switch {
	case len(t.waiting.list) == 0 || t.busy >= p.perTarget:
		return false
	case len(t.asked) > 0 || !t.down:
		return true
	}
	return t.busy == 0 && !now.Before(t.next)
}

// Due is when Next gives something, as long as nothing else happens; false is never.
func (p *Plan) Due(now time.Time) (due time.Time, ok bool) {
	if len(p.trying) >= p.limit {
		return due, false
	}
	if e := p.later.first(); e != nil {
		due, ok = time.Unix(0, e.due), true
	}
	for _, t := range p.targets {
		at := now
		if !p.open(t, now) {
			if len(t.waiting.list) == 0 || !t.down || t.busy > 0 {
				continue
			}
			at = t.next
		}
		if !ok || at.Before(due) {
			due, ok = at, true
		}
	}
	return due, ok
}
