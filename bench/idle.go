package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// noTime is what counts as no measurable processor time: one clock tick, the unit in which the kernel reports it.
const noTime = float64(clockTick / time.Millisecond)

// measureIdle is section e. The sweeper is kept out of the time that is looked at and measured by itself.
func measureIdle(ctx context.Context, b *bench) (rows []Row, err error) {
	count := b.counts.paused
	s, err := b.startServer(ctx, "--sweep-interval", "24h")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := b.pauseMany(ctx, s, "simulated", count); err != nil {
		return nil, err
	}
	value, err := b.effortIn(ctx, s.child)
	if err != nil {
		return nil, err
	}
	before, err := effortOf(s.pid())
	if err != nil {
		return nil, err
	}
	if _, err := call(ctx, http.MethodPost, s.base+"/api/v1/sweep", ""); err != nil {
		return nil, err
	}
	after, err := effortOf(s.pid())
	if err != nil {
		return nil, err
	}
	poller, err := b.pollingEffort(ctx, count)
	if err != nil {
		return nil, err
	}
	window := b.window.String()
	return []Row{
		row("paused operations, processor time in "+window, "ms", ms(value.ticks), nil, most(noTime), count),
		row("the same, by the scheduler", "ms", ms(value.ran), nil, nil, count),
		row("the same, part of a core", "%", share(value.ran, b.window), nil, nil, count),
		row("the same, waits of its threads", "", float64(value.switches), nil, nil, count),
		row("one sweep of them, by the scheduler", "ms", ms(after.minus(before).ran), nil, nil, count),
		row("polling: paused operations, processor time in "+window, "ms", ms(poller.ticks), nil, nil, count),
		row("polling: the same, part of a core", "%", share(poller.ran, b.window), nil, nil, count),
		row("polling: the same, waits of its threads", "", float64(poller.switches), nil, nil, count),
	}, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func share(d, of time.Duration) float64 { return 100 * float64(d) / float64(of) }

// effortIn is what a process does in the time that section e looks at it.
func (b *bench) effortIn(ctx context.Context, c *child) (effort, error) {
	if err := b.rest(ctx); err != nil {
		return effort{}, err
	}
	before, err := effortOf(c.pid())
	if err != nil {
		return effort{}, err
	}
	wait := time.NewTimer(b.window)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return effort{}, context.Cause(ctx)
	}
	after, err := effortOf(c.pid())
	return after.minus(before), err
}

func (b *bench) pollingEffort(ctx context.Context, count int) (e effort, err error) {
	dir, err := b.folder("polling")
	if err != nil {
		return e, err
	}
	var ready bool
	c, err := startRole(ctx, "poller", pollers{Dir: dir, Count: count, Paused: true}, &ready)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	return b.effortIn(ctx, c)
}
