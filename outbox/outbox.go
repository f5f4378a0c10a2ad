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
	// Settled: it is done with, delivered or not, and the target answered. Otherwise the target is down.
	Settled bool
	// After is how long the target asks to be left alone.
	After time.Duration
}

// Config says what an Outbox needs.
type Config struct {
	// Workers is how many deliveries run at once, PerTarget how many of them at one target. 0 is the default of each.
	Workers, PerTarget int
	// Probe is the least time between two tries at a target that is down; 0 is ProbeInterval.
	Probe time.Duration
	// Deliver tries one entry. It is called by several goroutines, for one entry by one at a time.
	Deliver func(ctx context.Context, name statefs.EntryName) Outcome
}

// Outbox tries entries until each of them is settled. It is safe for concurrent use.
type Outbox struct {
	deliver func(context.Context, statefs.EntryName) Outcome
	wake    chan struct{}

	mu   sync.Mutex // guards plan
	plan *Plan
}

// New makes an Outbox, which does nothing before Run.
func New(c Config) *Outbox {
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.PerTarget == 0 {
		c.PerTarget = DefaultPerTarget
	}
	plan := NewPlan(c.Workers, c.PerTarget, rand.Float64)
	if c.Probe > 0 {
		plan.probe = c.Probe
	}
	return &Outbox{deliver: c.Deliver, wake: make(chan struct{}, 1), plan: plan}
}

// Add has an entry be delivered to a target; the same entry counts once.
func (o *Outbox) Add(name statefs.EntryName, target string) {
	o.change(func(p *Plan) { p.Add(name, target) })
}

func (o *Outbox) change(do func(*Plan)) {
	o.mu.Lock()
	do(o.plan)
	o.mu.Unlock()
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
		target := o.plan.Target(name)
		workers.Go(func() { o.try(ctx, name, target) })
	}
}

func (o *Outbox) try(ctx context.Context, name statefs.EntryName, target string) {
	outcome := o.deliver(ctx, name)
	o.change(func(p *Plan) {
		if outcome.Settled {
			p.Settled(name, target)
		} else {
			p.Failed(name, target, time.Now(), outcome.After)
		}
	})
}
