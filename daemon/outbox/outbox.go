package outbox

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The defaults of Config.
const (
	DefaultWorkers   = 16
	DefaultPerTarget = 4
)

// Outcome is the result of a try.
type Outcome struct {
	// Settled: the target answered, and the entry is finished, delivered or not.
	Settled bool
	// LocalFault: the try failed for a local reason, without reaching the target. If neither is
	// set, the target is down.
	LocalFault bool
	// After is how long the target asks not to be contacted, and Reason why it is down, without
	// secrets.
	After  time.Duration
	Reason string
}

// Config configures an Outbox.
type Config struct {
	// Workers bounds the concurrent deliveries, PerTarget those to one target. 0 means the default
	// of each.
	Workers, PerTarget int
	// Probe is the least time between two tries at a target that is down; 0 is ProbeInterval.
	Probe time.Duration
	// Deliver tries one entry. It is called concurrently, but never twice at once for one entry.
	Deliver func(ctx context.Context, name statefs.EntryName) Outcome
	// Changed is called for each target that goes down or comes up; may be nil.
	Changed func(statefs.OutboxTarget)
}

// Outbox tries entries until each of them is settled. It is safe for concurrent use.
type Outbox struct {
	deliver func(context.Context, statefs.EntryName) Outcome
	changed func(statefs.OutboxTarget)
	wake    chan struct{}

	mu      sync.Mutex // guards what follows
	plan    *Plan
	waiters map[statefs.EntryName][]*waiter
}

// New makes an Outbox, which does nothing before Run.
func New(c Config) *Outbox {
	plan := NewPlan(cmp.Or(c.Workers, DefaultWorkers), cmp.Or(c.PerTarget, DefaultPerTarget), rand.Float64)
	plan.probe = cmp.Or(c.Probe, ProbeInterval)
	return &Outbox{
		deliver: c.Deliver, changed: c.Changed, wake: make(chan struct{}, 1), plan: plan,
		waiters: make(map[statefs.EntryName][]*waiter),
	}
}

// Add schedules an entry for delivery to a target. created is when the entry was made. Adding an
// entry again has no effect.
func (o *Outbox) Add(name statefs.EntryName, at Destination, created time.Time) {
	o.change(func(p *Plan) { p.Add(name, at, created) })
}

// Expect registers an entry whose file exists before the end of its operation is durable. Add
// follows.
func (o *Outbox) Expect(name statefs.EntryName, created time.Time) {
	o.note(func(p *Plan) { p.Expect(name, created) })
}

// Hold registers an entry that waits for a person and is not tried. label is that of its target.
func (o *Outbox) Hold(name statefs.EntryName, label string, created time.Time) {
	o.note(func(p *Plan) { p.Hold(name, label, created) })
}

// Forget removes an entry that no longer exists. A try under way is not interrupted.
func (o *Outbox) Forget(name statefs.EntryName) {
	o.note(func(p *Plan) {
		p.Forget(name)
		o.release(name, func(*waiter) bool { return true })
	})
}

// RetryNow schedules one try of an entry as soon as a worker is free, even when its target is down
// or its other entries fail.
func (o *Outbox) RetryNow(name statefs.EntryName) {
	o.change(func(p *Plan) { p.RetryNow(name) })
}

// ProbeNow schedules one try at each target of the entries at once, including targets that are
// down.
func (o *Outbox) ProbeNow(names []statefs.EntryName) {
	o.change(func(p *Plan) { p.ProbeNow(names, time.Now()) })
}

// State returns the state of an entry.
func (o *Outbox) State(name statefs.EntryName) (s EntryState) {
	o.note(func(p *Plan) { s = p.State(name) })
	return s
}

// Summary summarizes all entries and targets. It scans all entries in memory.
func (o *Outbox) Summary() (s statefs.OutboxStatus) {
	o.note(func(p *Plan) { s = p.Summary() })
	return s
}

// Select returns the first limit entries that match, the oldest first, and how many match in all.
// Unless after is nil, the page starts behind it. match must be quick, because it runs under the
// lock.
func (o *Outbox) Select(match func(*statefs.OutboxLine) bool, after *statefs.OutboxLine, limit int,
) (page []statefs.OutboxLine, total int) {
	o.note(func(p *Plan) { page, total = p.Select(match, after, limit) })
	return page, total
}

// Except returns the entries that are not in given, in no order.
func (o *Outbox) Except(given map[statefs.EntryName]bool) (names []statefs.EntryName) {
	o.note(func(p *Plan) { names = p.Except(given) })
	return names
}

func (o *Outbox) note(do func(*Plan)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do(o.plan)
}

// change is note for changes after which an entry may be due.
func (o *Outbox) change(do func(*Plan)) {
	o.note(do)
	select {
	case o.wake <- struct{}{}:
	default: // Run is about to check
	}
}

// Run delivers until ctx ends, then waits for the deliveries under way, whose context ends too.
func (o *Outbox) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Stop()
		if due, ok := o.dispatch(ctx, &workers); ok {
			timer.Reset(time.Until(due))
		}
		select {
		case <-o.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// dispatch starts every try that is due, and returns when the next one is.
func (o *Outbox) dispatch(ctx context.Context, workers *sync.WaitGroup) (due time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		name, ok := o.plan.Next(time.Now())
		if !ok {
			return o.plan.Due(time.Now())
		}
		for _, w := range o.waiters[name] {
			w.begun = true
		}
		workers.Go(func() { o.try(ctx, name) })
	}
}

func (o *Outbox) try(ctx context.Context, name statefs.EntryName) {
	outcome := o.deliver(ctx, name)
	var changed *statefs.OutboxTarget
	o.change(func(p *Plan) {
		switch {
		case outcome.Settled:
			changed = p.Settled(name)
		case outcome.LocalFault:
			p.Defer(name, time.Now())
		default:
			changed = p.Failed(name, time.Now(), outcome.After, outcome.Reason)
		}
		o.release(name, func(w *waiter) bool { return w.begun || outcome.Settled })
	})
	if changed != nil && o.changed != nil {
		o.changed(*changed)
	}
}

// waiter waits for a try of an entry.
type waiter struct {
	begun bool // a try has begun since
	done  chan struct{}
}

// Await returns a channel that is closed when a try of the entry that begins after the call ends,
// when a try under way settles the entry, or when the entry is forgotten. The caller must call stop
// when it no longer waits.
func (o *Outbox) Await(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	w := &waiter{done: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiters[name] = append(o.waiters[name], w)
	return w.done, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.release(name, func(other *waiter) bool { return other == w })
	}
}

// release wakes the chosen waiters of an entry. The caller holds the lock.
func (o *Outbox) release(name statefs.EntryName, chosen func(*waiter) bool) {
	left := slices.DeleteFunc(o.waiters[name], func(w *waiter) bool {
		if !chosen(w) {
			return false
		}
		close(w.done)
		return true
	})
	if o.waiters[name] = left; len(left) == 0 {
		delete(o.waiters, name)
	}
}
