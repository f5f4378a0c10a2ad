package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Targets of section a, in milliseconds.
const (
	endpointP50 = 1
	endpointP99 = 5
	touchP50    = 0.3
)

// measureControl is section a. Each request is made right after the same was done with the floor, so that both see
// the same machine.
func measureControl(ctx context.Context, b *bench) (rows []Row, err error) {
	s, err := b.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	seen, err := watch(inNames, nil, s.jobs(), s.taken())
	if err != nil {
		return nil, err
	}
	defer seen.close()
	plain, err := b.startRenamer(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	durable, err := b.startRenamer(ctx, b.durability == "power")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.stop()) }()
	c := &controller{server: s, seen: seen, plain: plain, durable: durable}
	for _, work := range []struct{ job, name string }{{"simulated", "handler"}, {"held", "command"}} {
		for _, way := range []string{"touch", "endpoint"} {
			more, err := c.measure(ctx, b.counts, work.job, work.name, way)
			rows = append(rows, more...)
			if err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

// controller asks for things and sees what happens.
type controller struct {
	*server
	seen *watcher
	// plain and durable are the floors: a rename, and one with a synced record before it, which is what an end takes.
	plain, durable *renamer
	calls          int
}

// timing is how long one request took.
type timing struct {
	fromAsk  time.Duration // from the start of the call, or of the system call that makes the file
	fromFile time.Duration // from the file's own event
	taken    time.Duration // until the daemon took the request
	answered time.Duration // until the endpoint answered
	plain    time.Duration // the floor
	floor    time.Duration // the floor of this action: plain, or durable for a cancel
}

type timings struct{ fromAsk, fromFile, taken, answered, plain, floor times }

func (t *timings) add(one timing) {
	t.fromAsk = append(t.fromAsk, one.fromAsk)
	t.fromFile = append(t.fromFile, one.fromFile)
	t.taken = append(t.taken, one.taken)
	t.answered = append(t.answered, one.answered)
	t.plain = append(t.plain, one.plain)
	t.floor = append(t.floor, one.floor)
}

// timings measures each action.
func (c *controller) timings(ctx context.Context, n counts, job, way string) (map[string]*timings, error) {
	out := map[string]*timings{"pause": {}, "resume": {}, "cancel": {}}
	id, err := c.running(ctx, job)
	if err != nil {
		return nil, err
	}
	one := func(action, marker string) error {
		t, err := c.request(ctx, way, id, action, marker)
		out[action].add(t)
		return err
	}
	for range n.rounds {
		if err := errors.Join(one("pause", id+".paused"), one("resume", id+".running")); err != nil {
			return nil, err
		}
	}
	for i := range n.cancels {
		if i > 0 {
			if id, err = c.running(ctx, job); err != nil {
				return nil, err
			}
		}
		if err := one("cancel", id+".running"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *controller) measure(ctx context.Context, n counts, job, name, way string) ([]Row, error) {
	all, err := c.timings(ctx, n, job, way)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, action := range []string{"pause", "resume", "cancel"} {
		t, what := all[action], name+", "+action+" by "+way
		if action == "cancel" {
			rows = append(rows, latencies(what+", until it is in taken/", t.taken, t.plain, 0, 0)...)
		}
		if way == "touch" {
			rows = append(rows, latencies(what, t.fromAsk, t.floor, touchP50, 0)...)
			continue
		}
		rows = append(rows, latencies(what, t.fromAsk, t.floor, endpointP50, endpointP99)...)
		rows = append(rows, latencies(what+", counted from the file", t.fromFile, t.floor, 0, 0)...)
		rows = append(rows, latencies(what+", until the answer", t.answered, nil, 0, 0)...)
	}
	return rows, nil
}

// floors does with the floor what is then asked for.
func (c *controller) floors(ctx context.Context, action string) (one timing, err error) {
	if c.plain == nil {
		return one, nil
	}
	if one.plain, err = c.plain.round(ctx); err != nil {
		return one, err
	}
	one.floor = one.plain
	if action == "cancel" {
		one.floor, err = c.durable.round(ctx)
	}
	return one, err
}

// request makes one request and returns when the marker shows its effect and the daemon is done with it. A cancel
// removes the marker, the others make it.
func (c *controller) request(ctx context.Context, way, id, action, marker string) (timing, error) {
	request := id + "." + action + "_requested"
	path := filepath.Join(c.jobs(), request)
	one, err := c.floors(ctx, action)
	if err != nil {
		return timing{}, err
	}
	c.seen.drain()
	began := time.Now()
	if way == "touch" {
		err = touch(path)
	} else {
		method := http.MethodPost
		if c.calls++; c.calls%2 == 0 {
			method = http.MethodGet
		}
		err = c.control(ctx, method, id, action)
		one.answered = time.Since(began)
	}
	if err != nil {
		return timing{}, err
	}
	var made, moved time.Time
	for dropped := false; moved.IsZero() || !dropped; {
		e, err := c.seen.await(ctx, action+" of "+id, func(e event) bool { return e.name == request || e.name == marker })
		if err != nil {
			return timing{}, err
		}
		appeared := e.mask&unix.IN_DELETE == 0
		switch {
		case e.from == c.taken() && appeared:
			one.taken = e.at.Sub(began)
		case e.from == c.taken():
			dropped = true
		case e.name == request && appeared:
			made = e.at
		case e.name == marker && appeared == (action != "cancel"):
			moved = e.at
		}
	}
	one.fromAsk, one.fromFile = moved.Sub(began), moved.Sub(made)
	return one, nil
}
