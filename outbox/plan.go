package outbox

import (
	"cmp"
	"container/heap"
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
)

// Plan says which entry is tried next. It is not safe for concurrent use.
type Plan struct {
	limit, perTarget int
	probe            time.Duration
	jitter           func() float64
	targets          map[string]*target
	entries          map[statefs.EntryName]*entry
	busy             int
	sequence         uint64
}

// target is where entries go.
type target struct {
	name    string
	waiting line
	busy    int
	down    bool
	next    time.Time // of the next probe while it is down
	served  uint64    // when it had its last turn, for taking turns
}

type entry struct {
	name     statefs.EntryName
	target   *target
	tries    int
	sequence uint64
}

// NewPlan makes an empty plan for at most limit deliveries at once, perTarget of them at one target. jitter gives chance, from 0 to 1.
func NewPlan(limit, perTarget int, jitter func() float64) *Plan {
	return &Plan{
		limit: limit, perTarget: perTarget, probe: ProbeInterval, jitter: jitter, targets: make(map[string]*target), entries: make(map[statefs.EntryName]*entry),
	}
}

// Add has an entry be tried; one that is there already stays as it is.
func (p *Plan) Add(name statefs.EntryName, at string) {
	if p.entries[name] != nil {
		return
	}
	t := p.targets[at]
	if t == nil {
		t = &target{name: at}
		p.targets[at] = t
	}
	p.sequence++
	e := &entry{name: name, target: t, sequence: p.sequence}
	p.entries[name] = e
	heap.Push(&t.waiting, e)
}

// tidy forgets a target of which nothing is left. One that is down and comes back with the next entry is probed then, which costs one try.
func (p *Plan) tidy(t *target) {
	if len(t.waiting) == 0 && t.busy == 0 {
		delete(p.targets, t.name)
	}
}

// Next gives an entry to be tried now, and takes it out until Settled or Failed; false when there is none.
func (p *Plan) Next(now time.Time) (statefs.EntryName, bool) {
	if p.busy >= p.limit {
		return statefs.EntryName{}, false
	}
	var best *target
	for _, t := range p.targets {
		if p.open(t, now) && (best == nil || cmp.Or(cmp.Compare(t.served, best.served), cmp.Compare(t.name, best.name)) < 0) {
			best = t
		}
	}
	if best == nil {
		return statefs.EntryName{}, false
	}
	e, _ := heap.Pop(&best.waiting).(*entry)
	e.tries++
	p.sequence++
	best.served = p.sequence
	best.busy++
	p.busy++
	return e.name, true
}

// open says whether a target may be given something.
func (p *Plan) open(t *target, now time.Time) bool {
	switch {
	case len(t.waiting) == 0:
		return false
	case t.down:
		return t.busy == 0 && !now.Before(t.next)
	}
	return t.busy < p.perTarget
}

// Settled says that an entry which was tried is done with: its target took or refused it, so it can be reached.
func (p *Plan) Settled(name statefs.EntryName, at string) {
	p.tried(name, at, func(t *target, _ *entry) { t.down = false })
}

// Failed says that an entry which was tried goes back, and its target is down; after is how long the target asks to be left alone, 0
// when it does not.
func (p *Plan) Failed(name statefs.EntryName, at string, now time.Time, after time.Duration) {
	p.tried(name, at, func(t *target, e *entry) {
		t.down = true
		t.next = now.Add(max(p.probe+time.Duration(p.jitter()*probeJitter*float64(p.probe)), min(after, maxRetryAfter)))
		p.entries[name] = e
		heap.Push(&t.waiting, e)
	})
}

// tried ends a try.
func (p *Plan) tried(name statefs.EntryName, at string, then func(t *target, e *entry)) {
	t, e := p.targets[at], p.entries[name]
	delete(p.entries, name)
	t.busy--
	p.busy--
	then(t, e)
	p.tidy(t)
}

// Target is the target of an entry, "" when it is not there.
func (p *Plan) Target(name statefs.EntryName) string {
	if e := p.entries[name]; e != nil {
		return e.target.name
	}
	return ""
}

// Due is when Next gives something, as long as nothing else happens; false is never.
func (p *Plan) Due(now time.Time) (due time.Time, ok bool) {
	if p.busy >= p.limit {
		return due, false
	}
	for _, t := range p.targets {
		at := now
		if !p.open(t, now) {
			if len(t.waiting) == 0 || !t.down || t.busy > 0 {
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

// line is a heap of entries that wait for one target: those with fewer tries first, then as they came.
type line []*entry

func (l line) Len() int { return len(l) }

func (l line) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].tries, l[j].tries), cmp.Compare(l[i].sequence, l[j].sequence)) < 0
}

func (l line) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push is of heap.Interface.
func (l *line) Push(x any) {
	e, _ := x.(*entry)
	*l = append(*l, e)
}

// Pop is of heap.Interface.
func (l *line) Pop() any {
	last := len(*l) - 1
	e := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return e
}
