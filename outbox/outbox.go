package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The defaults of Config.
const (
	DefaultWorkers   = 16
	DefaultPerTarget = 4
)

// Outcome says how a try went.
type Outcome struct {
	// Settled: it is done with, delivered or not, and the target answered.
	Settled bool
	// Ours: it could not be tried for a reason on our side, and its target was not asked. When neither is so, the target is down.
	Ours bool
	// After is how long the target asks to be left alone, and Reason why it is down, without anything secret.
	After  time.Duration
	Reason string
}

// Config says what an Outbox needs.
type Config struct {
	// Workers is how many deliveries run at once, PerTarget how many of them at one target. 0 is the default of each.
	Workers, PerTarget int
	// Probe is the least time between two tries at a target that is down; 0 is ProbeInterval.
	Probe time.Duration
	// Deliver tries one entry. It is called by several goroutines, for one entry by one at a time.
	Deliver func(ctx context.Context, name statefs.EntryName) Outcome
	// Changed is told of each target that goes down or comes up; nil: nobody is.
	Changed func(TargetState)
}

// Outbox tries entries until each of them is settled. It is safe for concurrent use.
type Outbox struct {
	deliver func(context.Context, statefs.EntryName) Outcome
	changed func(TargetState)
	wake    chan struct{}

	mu      sync.Mutex // guards what follows
	plan    *Plan
	waiters map[statefs.EntryName][]*waiter
}

// New makes an Outbox, which does nothing before Run.
func New(c Config) *Outbox {
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.PerTarget == 0 {
		c.PerTarget = DefaultPerTarget
	}
	if c.Changed == nil {
		c.Changed = func(TargetState) {}
	}
	plan := NewPlan(c.Workers, c.PerTarget, rand.Float64)
	if c.Probe > 0 {
		plan.probe = c.Probe
	}
	return &Outbox{deliver: c.Deliver, changed: c.Changed, wake: make(chan struct{}, 1), plan: plan, waiters: make(map[statefs.EntryName][]*waiter)}
}

// Add has an entry that was made at a time be delivered to a target; the same entry counts once.
func (o *Outbox) Add(name statefs.EntryName, at Destination, created time.Time) {
	o.change(func(p *Plan) { p.Add(name, at, created) })
}

// Expect notes an entry that is on the disk before its end is durable: Add follows.
func (o *Outbox) Expect(name statefs.EntryName, created time.Time) {
	o.note(func(p *Plan) { p.Expect(name, created) })
}

// Hold notes that an entry waits for a person, and is not tried. label is that of its target.
func (o *Outbox) Hold(name statefs.EntryName, label string, created time.Time) {
	o.note(func(p *Plan) { p.Hold(name, label, created) })
}

// Forget notes that an entry is gone. A try that is under way ends as it does.
func (o *Outbox) Forget(name statefs.EntryName) {
	o.note(func(p *Plan) {
		p.Forget(name)
		o.release(name, anyone)
	})
}

// Ask has an entry tried once as soon as there is a worker for it, also when its target is down, and whatever becomes of others there.
func (o *Outbox) Ask(name statefs.EntryName) {
	o.change(func(p *Plan) { p.Ask(name) })
}

// Prompt has the targets of entries tried with one entry each at once, also those that are down.
func (o *Outbox) Prompt(names []statefs.EntryName) {
	o.change(func(p *Plan) { p.Prompt(names, time.Now()) })
}

// Standing says how far an entry is.
func (o *Outbox) Standing(name statefs.EntryName) (s Standing) {
	o.note(func(p *Plan) { s = p.Standing(name) })
	return s
}

// Summary says what there is, which takes a look at all of it in memory.
func (o *Outbox) Summary() (s Summary) {
	o.note(func(p *Plan) { s = p.Summary() })
	return s
}

// Select returns the first limit entries that match, the oldest first, those behind after alone when it is not nil, and how many match in all. match must be quick.
func (o *Outbox) Select(match func(*Line) bool, after *Line, limit int) (page []Line, total int) {
	o.note(func(p *Plan) { page, total = p.Select(match, after, limit) })
	return page, total
}

// Beside returns the entries that are not among the given ones, in no order.
func (o *Outbox) Beside(given map[statefs.EntryName]bool) (names []statefs.EntryName) {
	o.note(func(p *Plan) { names = p.Beside(given) })
	return names
}

func (o *Outbox) note(do func(*Plan)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do(o.plan)
}

// change is note for what may make something due.
func (o *Outbox) change(do func(*Plan)) {
	o.note(do)
	select {
	case o.wake <- struct{}{}:
	default: // it is about to look
	}
}

// Run delivers until ctx ends, and then waits for what is under way, whose context has ended too.
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

// dispatch begins all that may be tried now, and says when to look again.
func (o *Outbox) dispatch(ctx context.Context, workers *sync.WaitGroup) (due time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		name, ok := o.plan.Next(time.Now())
		if !ok {
			return o.plan.Due(time.Now())
		}
		o.begin(name)
		workers.Go(func() { o.try(ctx, name) })
	}
}

func (o *Outbox) try(ctx context.Context, name statefs.EntryName) {
	outcome := o.deliver(ctx, name)
	var changed []TargetState
	o.change(func(p *Plan) {
		switch {
		case outcome.Settled:
			p.Settled(name)
		case outcome.Ours:
			p.Defer(name, time.Now())
		default:
			p.Failed(name, time.Now(), outcome.After, outcome.Reason)
		}
		changed = p.Changes()
		o.release(name, func(w *waiter) bool { return w.begun || outcome.Settled })
	})
	for _, t := range changed {
		o.changed(t)
	}
}
