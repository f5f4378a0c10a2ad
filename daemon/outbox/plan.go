package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/indexheap"
	"github.com/jobdir/jobdir/statefs"
)

const (
	// ProbeInterval is the least time between two tries at a target that is down, unless
	// Config.Probe is set.
	ProbeInterval = 15 * time.Second
	// probeJitter is the fraction of the interval by which a probe may be later, so that many
	// daemons do not probe at once.
	probeJitter = 0.2
	// maxRetryAfter bounds the pause that a target may ask for.
	maxRetryAfter = time.Hour
	// maxDeferral bounds how long an entry with a local fault is deferred.
	maxDeferral = 5 * time.Minute
)

// Destination identifies the target of an entry.
type Destination struct {
	// Key identifies the target. It may hold a secret, so it is never shown; Label is the public
	// name.
	Key, Label string
}

// EntryState is the state of an entry.
type EntryState uint8

// The states of an entry.
const (
	Unknown  EntryState = iota
	Expected            // the end of its operation is not durable yet: not tried
	Waiting             // for its turn
	Busy                // it is being tried
	Deferred            // the last try met a local fault: it is retried after a delay
	Held                // it waits for a person
)

// Plan decides which entry is tried next. It knows all entries. It is not safe for concurrent use.
type Plan struct {
	limit, perTarget int
	probe            time.Duration
	jitter           func() float64
	targets          map[string]*target
	entries          map[statefs.EntryName]*entry
	trying           map[statefs.EntryName]*target
	deferred         indexheap.Heap[entry] // entries in the state Deferred
	sequence         uint64
}

// target is the state of one Destination.
type target struct {
	Destination
	waiting indexheap.Heap[entry]
	count   int // entries with this target
	busy    int
	down    bool
	since   time.Time // when it went down
	reason  string    // why it is down
	next    time.Time // of the next probe while it is down
	// every second probe takes the newest entry, so that entries which the target never accepts do
	// not block the others
	probes         int
	probeRequested bool     // a user asked for a try, and none has begun since
	urgent         []*entry // waiting entries that a user asked to retry, the latest last
	served         uint64   // sequence of its last turn: targets take turns
}

type entry struct {
	name       statefs.EntryName
	target     *target // nil while it is expected or held
	label      string
	sequence   uint64
	created    int64 // Unix time in nanoseconds
	due        int64 // Unix time in nanoseconds, when Deferred
	tries      int32
	index      int32 // in its heap
	state      EntryState
	urgent     bool // it is in target.urgent
	retryAgain bool // a user asked for a retry during a try
}

// NewPlan makes an empty plan for at most limit concurrent deliveries, perTarget of them at one
// target. jitter returns random numbers from 0 to 1.
func NewPlan(limit, perTarget int, jitter func() float64) *Plan {
	return &Plan{
		limit: limit, perTarget: perTarget, probe: ProbeInterval, jitter: jitter, targets: make(map[string]*target),
		entries: make(map[statefs.EntryName]*entry), trying: make(map[statefs.EntryName]*target),
		deferred: indexheap.New(sooner, indexOf),
	}
}

// State returns the state of an entry.
func (p *Plan) State(name statefs.EntryName) EntryState {
	if e := p.entries[name]; e != nil {
		return e.state
	}
	return Unknown
}

// Expect registers an entry whose file exists before the end of its operation is durable.
func (p *Plan) Expect(name statefs.EntryName, created time.Time) { p.entry(name, created) }

// entry returns the entry of a name, which is expected if it is new.
func (p *Plan) entry(name statefs.EntryName, created time.Time) *entry {
	e := p.entries[name]
	if e == nil {
		e = &entry{name: name, created: created.UnixNano(), state: Expected}
		p.entries[name] = e
	}
	return e
}

// Add schedules an entry. It does not change an entry that already has a target.
func (p *Plan) Add(name statefs.EntryName, at Destination, created time.Time) {
	e := p.entry(name, created)
	if e.target != nil {
		return
	}
	t := p.targets[at.Key]
	if t == nil {
		t = &target{Destination: at, waiting: indexheap.New(fewerTries, indexOf)}
		p.targets[at.Key] = t
	}
	p.sequence++
	e.target, e.label, e.sequence, e.created, e.tries, e.retryAgain = t, t.Label, p.sequence, created.UnixNano(), 0, false
	t.count++
	if p.trying[name] != nil { // it was forgotten during a try: the outcome of that try counts
		e.state = Busy
		return
	}
	p.wait(e)
}

func (p *Plan) wait(e *entry) {
	e.state = Waiting
	e.target.waiting.Put(e)
}

// Hold registers an entry that waits for a person. label is that of its target.
func (p *Plan) Hold(name statefs.EntryName, label string, created time.Time) {
	e := p.entry(name, created)
	p.detach(e)
	e.label, e.state = label, Held
}

// Forget removes an entry that no longer exists.
func (p *Plan) Forget(name statefs.EntryName) {
	if e := p.entries[name]; e != nil {
		p.detach(e)
		delete(p.entries, name)
	}
}

// detach separates an entry from its target.
func (p *Plan) detach(e *entry) {
	t := e.target
	if t == nil {
		return
	}
	switch e.state {
	case Waiting:
		t.dropUrgent(e)
		t.waiting.Remove(e)
	case Deferred:
		p.deferred.Remove(e)
	case Unknown, Expected, Busy, Held:
	}
	e.target = nil
	t.count--
	p.tidy(t)
}

// tidy forgets a target without entries and tries. If it was down, it counts as up when its next
// entry comes, which costs one try.
func (p *Plan) tidy(t *target) {
	if t.count == 0 && t.busy == 0 && p.targets[t.Key] == t {
		delete(p.targets, t.Key)
	}
}

// Next returns an entry to try now, and false when there is none. The caller ends the try by
// Settled, Failed or Defer.
func (p *Plan) Next(now time.Time) (statefs.EntryName, bool) {
	if len(p.trying) >= p.limit {
		return statefs.EntryName{}, false
	}
	for e := p.deferred.First(); e != nil && e.due <= now.UnixNano(); e = p.deferred.First() {
		p.deferred.Remove(e)
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
	e.state = Busy
	p.sequence++
	best.served = p.sequence
	best.busy++
	p.trying[e.name] = best
	return e.name, true
}

// before reports whether t gets its turn before other: targets with urgent entries first, then by
// the time of their last turn, the earliest first.
func (t *target) before(other *target) bool {
	if asked := len(t.urgent) > 0; asked != (len(other.urgent) > 0) {
		return asked
	}
	return cmp.Or(cmp.Compare(t.served, other.served), cmp.Compare(t.Key, other.Key)) < 0
}

// take removes and returns the waiting entry to try next.
func (t *target) take() *entry {
	e := t.waiting.First()
	switch {
	case len(t.urgent) > 0:
		e = t.urgent[len(t.urgent)-1]
	case t.down:
		if t.probes++; t.probes%2 == 0 {
			e = t.newest()
		}
	}
	t.dropUrgent(e)
	t.waiting.Remove(e)
	t.probeRequested = false
	return e
}

// open reports whether a try at the target may begin now.
func (p *Plan) open(t *target, now time.Time) bool {
	switch {
	case t.waiting.Len() == 0 || t.busy >= p.perTarget:
		return false
	case len(t.urgent) > 0 || !t.down:
		return true
	}
	return t.busy == 0 && !now.Before(t.next)
}

// Due returns when Next has an entry, if nothing else happens before; false means never.
func (p *Plan) Due(now time.Time) (due time.Time, ok bool) {
	if len(p.trying) >= p.limit {
		return due, false
	}
	if e := p.deferred.First(); e != nil {
		due, ok = time.Unix(0, e.due), true
	}
	for _, t := range p.targets {
		at := now
		if !p.open(t, now) {
			if t.waiting.Len() == 0 || !t.down || t.busy > 0 {
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

// indexOf returns where an entry keeps its index in its heap.
func indexOf(e *entry) *int32 { return &e.index }

// fewerTries orders by number of tries, then by order of arrival.
func fewerTries(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.tries, b.tries), cmp.Compare(a.sequence, b.sequence)) < 0
}

// sooner orders by due time, then by order of arrival.
func sooner(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.sequence, b.sequence)) < 0
}

// newest returns the latest of the waiting entries that have as few tries as the first; nil when there is none.
func (t *target) newest() *entry {
	last := t.waiting.First()
	for _, e := range t.waiting.All() {
		if e.tries == last.tries && e.sequence > last.sequence {
			last = e
		}
	}
	return last
}

// Settled ends a try after which the entry is finished: its target accepted or refused it, so the
// target is up. An entry that was put on hold during the try stays. It returns the target if that
// came up.
func (p *Plan) Settled(name statefs.EntryName) *statefs.OutboxTarget {
	return p.finishTry(name, func(t *target, e *entry) {
		if e != nil {
			p.Forget(name)
		}
		t.down, t.reason = false, ""
	})
}

// Failed ends a try after which the entry waits again and its target is down. after is how long the
// target asks not to be contacted, 0 when it does not ask. It returns the target if that went down.
func (p *Plan) Failed(name statefs.EntryName, now time.Time, after time.Duration, reason string) *statefs.OutboxTarget {
	return p.finishTry(name, func(t *target, e *entry) {
		if !t.probeRequested { // a try that began before a user's request proves nothing about the target since
			t.next = now.Add(max(p.probe+p.withJitter(p.probe), min(after, maxRetryAfter)))
		}
		t.reason = reason
		if e != nil {
			p.requeue(e)
		}
		if !t.down {
			t.down, t.since = true, now
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
		p.deferred.Put(e)
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

// finishTry ends a try, and returns the target if it went down or came up. then gets nil for an
// entry that was forgotten or put on hold during the try.
func (p *Plan) finishTry(name statefs.EntryName, then func(t *target, e *entry)) (changed *statefs.OutboxTarget) {
	t, e := p.trying[name], p.entries[name]
	wasDown := t.down
	delete(p.trying, name)
	t.busy--
	if e != nil && e.state != Busy {
		e = nil
	}
	then(t, e)
	if t.down != wasDown {
		changed = new(t.state())
	}
	p.tidy(t)
	return changed
}

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
	p.deferred.Remove(e)
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
