package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/jobdir/jobdir/keeper"
)

// gate holds the work of one run while it is paused. A pause stops processes at once and lets Go code run on to its next
// checkpoint; the work counts as stopped when everything that is under way is either a stopped process or waits here.
//
// The zero value is open.
type gate struct {
	mu        sync.Mutex
	asked     bool          // somebody wants the work to stop
	change    chan struct{} // closed and replaced when asked changes; nil until somebody waits
	inside    int           // goroutines that wait with an item of theirs open
	outside   int           // goroutines that wait between items
	open      int           // items that have begun and not ended
	processes map[keeper.Running]struct{}
	stopped   func()     // called without the lock when the last part stops
	paused    func(bool) // called with the lock when a pause is asked for and when it is over
}

// pause asks the work to stop and reports whether it has.
func (g *gate) pause() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked {
		g.asked = true
		g.announceLocked()
		g.tellLocked()
	}
	for p := range g.processes {
		_ = p.Stop() // a process that has just ended needs no stop
	}
	return g.stoppedLocked()
}

// resume lets the work go on.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked {
		return
	}
	g.asked = false
	g.announceLocked()
	g.tellLocked()
	for p := range g.processes {
		_ = p.Continue() // a process that has just ended needs none
	}
}

// held reports whether somebody wants the work to stand still.
func (g *gate) held() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// isStopped reports whether a pause was asked for and nothing moves any more.
func (g *gate) isStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked && g.stoppedLocked()
}

func (g *gate) stoppedLocked() bool {
	held := g.inside + len(g.processes)
	return held >= g.open && held+g.outside > 0
}

func (g *gate) tellLocked() {
	if g.paused != nil {
		g.paused(g.asked)
	}
}

func (g *gate) announceLocked() {
	if g.change != nil {
		close(g.change)
		g.change = nil
	}
}

// changedLocked returns a channel that closes at the next pause or resume.
func (g *gate) changedLocked() <-chan struct{} {
	if g.change == nil {
		g.change = make(chan struct{})
	}
	return g.change
}

// begin and end count an item that is under way.
func (g *gate) begin() {
	g.mu.Lock()
	g.open++
	g.mu.Unlock()
}

func (g *gate) end() {
	g.mu.Lock()
	g.open--
	tell := g.asked && g.stoppedLocked()
	g.mu.Unlock()
	if tell {
		g.stopped()
	}
}

// place says where a goroutine waits: only one that holds its item still counts for that item.
type place bool

const (
	insideItem   place = true
	betweenItems place = false
)

// checkpoint waits while the work is paused. It returns the cause of ctx's end when the work is to end.
func (g *gate) checkpoint(ctx context.Context, at place) error { return g.sleep(ctx, at, 0) }

// sleep waits for d, not counting the time in which the work is paused, and is a checkpoint all along: a pause or a cancel wakes
// it at once.
func (g *gate) sleep(ctx context.Context, at place, d time.Duration) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.mu.Lock()
		if g.asked {
			g.wait(ctx, at)
			continue
		}
		if d <= 0 {
			g.mu.Unlock()
			return nil
		}
		changed := g.changedLocked()
		g.mu.Unlock()
		d = doze(ctx, d, changed)
	}
}

// doze sleeps for d or until something happens, and returns what is left of d.
func doze(ctx context.Context, d time.Duration, changed <-chan struct{}) time.Duration {
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-changed:
	case <-ctx.Done():
	}
	return max(d-time.Since(began), 1) // not 0: the caller still has to wait for the resume and look again
}

// wait is entered with the lock held, and returns without it when the pause is over or ctx has ended.
func (g *gate) wait(ctx context.Context, at place) {
	count := &g.outside
	if at == insideItem {
		count = &g.inside
	}
	*count++
	changed := g.changedLocked()
	tell := g.stoppedLocked()
	g.mu.Unlock()
	if tell {
		g.stopped()
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	g.mu.Lock()
	*count--
	g.mu.Unlock()
}

// start starts a process unless the work is paused; then it waits first, so that no process ever begins behind a pause.
func (g *gate) start(ctx context.Context, starter keeper.Starter, command keeper.Command) (keeper.Running, error) {
	for {
		if err := g.checkpoint(ctx, insideItem); err != nil {
			return nil, err
		}
		g.mu.Lock()
		if g.asked {
			g.mu.Unlock()
			continue
		}
		p, err := starter.Start(ctx, command)
		if err == nil {
			g.addLocked(p)
		}
		g.mu.Unlock()
		return p, err
	}
}

func (g *gate) addLocked(p keeper.Running) {
	if g.processes == nil {
		g.processes = make(map[keeper.Running]struct{})
	}
	g.processes[p] = struct{}{}
}

// attach takes a process in that an earlier daemon has started, and stops or continues it as the gate is now.
func (g *gate) attach(p keeper.Running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addLocked(p)
	if g.asked {
		_ = p.Stop() // a process that has just ended needs no stop
	} else {
		_ = p.Continue() // a process that has just ended needs none
	}
}

// ended forgets a process.
func (g *gate) ended(p keeper.Running) {
	g.mu.Lock()
	delete(g.processes, p)
	g.mu.Unlock()
}
