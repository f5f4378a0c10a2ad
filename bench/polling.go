package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The waits of a program that polls: it looks for requests between two units of work, and while it is paused on a
// timer.
const (
	pollWork = 200 * time.Millisecond
	pollWait = 100 * time.Millisecond
)

// pollers is the argument of the role poller.
type pollers struct {
	Dir    string
	Count  int
	Paused bool // begin so
}

func pollerID(i int) string { return fmt.Sprintf("op-%d", i) }

// playPoller runs operations that poll for their requests.
func playPoller(ctx context.Context, argument []byte) error {
	var o pollers
	if err := json.Unmarshal(argument, &o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go answerHeap(stop)
	say(true)
	var group sync.WaitGroup
	errs := make([]error, o.Count)
	for i := range o.Count {
		group.Go(func() { errs[i] = poll(ctx, o.Dir, pollerID(i), o.Paused) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// poll is one operation: between two units of work, or two waits, it looks whether a request is there.
func poll(ctx context.Context, dir, id string, paused bool) error {
	marker := func() string {
		if paused {
			return filepath.Join(dir, id+".paused")
		}
		return filepath.Join(dir, id+".running")
	}
	if err := touch(marker()); err != nil {
		return err
	}
	for {
		if take(dir, id, "cancel") {
			return os.Remove(marker())
		}
		if ask := map[bool]string{true: "resume", false: "pause"}[paused]; take(dir, id, ask) {
			old := marker()
			paused = !paused
			if err := os.Rename(old, marker()); err != nil {
				return err
			}
			continue
		}
		wait := time.NewTimer(map[bool]time.Duration{true: pollWait, false: pollWork}[paused])
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
	}
}

// take looks for a request and removes it.
func take(dir, id, ask string) bool {
	path := filepath.Join(dir, id+"."+ask+"_requested")
	if _, err := os.Stat(path); err != nil {
		return false
	}
	return os.Remove(path) == nil
}

// measurePolling is section b: many operations side by side, because each answer takes so long.
func measurePolling(ctx context.Context, b *bench) (rows []Row, err error) {
	dir, err := b.folder("polling")
	if err != nil {
		return nil, err
	}
	floor, err := b.startRenamer(ctx, false)
	if err != nil {
		return nil, err
	}
	var low times
	for range b.counts.rounds {
		one, err := floor.round(ctx)
		if err != nil {
			return nil, errors.Join(err, floor.stop())
		}
		low = append(low, one)
	}
	if err := floor.stop(); err != nil {
		return nil, err
	}
	p := &polled{dir: dir, events: make(map[string]chan event)}
	for i := range b.counts.pollers {
		p.events[pollerID(i)] = make(chan event, 16)
	}
	seen, err := watch(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE, p.spread, dir)
	if err != nil {
		return nil, err
	}
	defer seen.close()
	var ready bool
	c, err := startRole(ctx, "poller", pollers{Dir: dir, Count: b.counts.pollers}, &ready)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	var group sync.WaitGroup
	errs := make([]error, b.counts.pollers)
	for i := range b.counts.pollers {
		group.Go(func() { errs[i] = p.drive(ctx, i, b.counts.pollTurns) })
	}
	group.Wait()
	rows = latencies("polling: pause", p.pauses, low, 0, 0)
	rows = append(rows, latencies("polling: resume", p.resumes, low, 0, 0)...)
	return append(rows, latencies("polling: cancel", p.cancels, low, 0, 0)...), errors.Join(errs...)
}

// polled drives the operations of a polling program.
type polled struct {
	dir    string
	events map[string]chan event // of markers, by operation; not changed once the watcher runs

	mu                       sync.Mutex
	pauses, resumes, cancels times
}

func (p *polled) spread(e event) {
	id, what, _ := strings.Cut(e.name, ".")
	if to := p.events[id]; to != nil && !strings.HasSuffix(what, "_requested") {
		to <- e
	}
}

// drive pauses and resumes one operation at times that have nothing to do with its timers, and cancels it.
func (p *polled) drive(ctx context.Context, number, rounds int) error {
	id := pollerID(number)
	if _, err := p.await(ctx, id); err != nil { // it began
		return err
	}
	for i := range rounds {
		for _, turn := range []struct {
			ask string
			all *times
		}{{"pause", &p.pauses}, {"resume", &p.resumes}} {
			if err := p.request(ctx, id, turn.ask, turn.all, spreadOver(number*rounds+i)); err != nil {
				return err
			}
		}
	}
	return p.request(ctx, id, "cancel", &p.cancels, spreadOver(number))
}

// spreadOver spreads moments evenly over a unit of work.
func spreadOver(i int) time.Duration { return time.Duration(i*617%1000) * pollWork / 1000 }

func (p *polled) request(ctx context.Context, id, ask string, all *times, after time.Duration) error {
	wait := time.NewTimer(after)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	if err := touch(filepath.Join(p.dir, id+"."+ask+"_requested")); err != nil {
		return err
	}
	e, err := p.await(ctx, id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	*all = append(*all, e.at.Sub(began))
	return nil
}

func (p *polled) await(ctx context.Context, id string) (event, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case e := <-p.events[id]:
		return e, nil
	case <-late.C:
		return event{}, fmt.Errorf("wait for %s: nothing happened for %s", id, patience)
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}
