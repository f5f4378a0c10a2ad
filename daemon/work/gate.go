package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs/notify"
)

// gate stops the work of one run while it is paused. A pause stops processes immediately; Go
// code runs on to its next checkpoint. The work counts as stopped once every part of it is either
// a stopped process or waits at the gate.
//
// The zero value is open.
type gate struct {
	mu                  sync.Mutex
	requested           bool          // a pause is requested
	change              chan struct{} // closed and cleared when requested changes; nil without waiters
	waitingInItem       int           // goroutines that wait with their item open
	waitingBetweenItems int           // goroutines that wait between items
	openItems           int           // items that have begun and not ended
	processes           map[keeper.Running]struct{}
	cutOffPaused        bool       // work was cut off while a pause was requested
	onStopped           func()     // called without the lock when the last part stops
	onPauseChange       func(bool) // called with the lock when a pause is requested and when it is over
}

// Pause requests that the work stops and reports whether it has stopped.
func (g *gate) Pause() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.requested {
		g.requestLocked(true)
	}
	for p := range g.processes {
		_ = p.Stop() // fails only if the process has just ended
	}
	return g.stoppedLocked()
}

// Resume lets the work go on.
func (g *gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.requested {
		return
	}
	g.requestLocked(false)
	for p := range g.processes {
		if err := p.Continue(); errors.Is(err, keeper.ErrKeeperDied) || isCutOff(p) {
			g.cutOffPaused = true // it died during the pause, and nothing has noticed yet
		}
	}
}

// noteCutOff notes that work was cut off: it counts as paused work if a pause is requested.
func (g *gate) noteCutOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteCutOffLocked()
}

func (g *gate) noteCutOffLocked() { g.cutOffPaused = g.cutOffPaused || g.requested }

// CutOffWhilePaused reports whether a run that failed with an error code was cut off while a pause was
// requested.
func (g *gate) CutOffWhilePaused(code string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cutOffPaused && CutOff(code)
}

// isCutOff reports whether a process has ended without a result, because its keeper died for
// example.
func isCutOff(p keeper.Running) bool {
	if !notify.IsClosed(p.Done()) {
		return false
	}
	failed, ok := errors.AsType[*Error](exitError(p.Exit()))
	return ok && CutOff(failed.Code)
}

// PauseRequested reports whether a pause is requested.
func (g *gate) PauseRequested() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requested
}

// IsStopped reports whether a pause is requested and all work has stopped.
func (g *gate) IsStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requested && g.stoppedLocked()
}

func (g *gate) stoppedLocked() bool {
	held := g.waitingInItem + len(g.processes)
	return held >= g.openItems && held+g.waitingBetweenItems > 0
}

// requestLocked requests a pause, or ends it, and wakes what waits for that.
func (g *gate) requestLocked(pause bool) {
	g.requested = pause
	if g.change != nil {
		close(g.change)
		g.change = nil
	}
	if g.onPauseChange != nil {
		g.onPauseChange(pause)
	}
}

// unlock releases the lock, after something has stopped, and reports the stop if it was the last part.
func (g *gate) unlock() {
	stopped := g.requested && g.stoppedLocked()
	g.mu.Unlock()
	if stopped {
		g.onStopped()
	}
}

// changedLocked returns a channel that closes at the next pause or resume.
func (g *gate) changedLocked() <-chan struct{} {
	if g.change == nil {
		g.change = make(chan struct{})
	}
	return g.change
}

// begin and end count the open items.
func (g *gate) begin() {
	g.mu.Lock()
	g.openItems++
	g.mu.Unlock()
}

func (g *gate) end() {
	g.mu.Lock()
	g.openItems--
	g.unlock()
}

// waitPlace says where a goroutine waits: a goroutine that waits inside its item stops that item.
type waitPlace bool

const (
	insideItem   waitPlace = true
	betweenItems waitPlace = false
)

// checkpoint waits while the work is paused. It returns the cause of ctx if ctx ends.
func (g *gate) checkpoint(ctx context.Context, at waitPlace) error { return g.sleep(ctx, at, 0) }

// sleep waits for d, not counting the time in which the work is paused. It is a checkpoint
// throughout: a pause or a cancel wakes it at once.
func (g *gate) sleep(ctx context.Context, at waitPlace, d time.Duration) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.mu.Lock()
		if g.requested {
			g.wait(ctx, at)
			continue
		}
		if d <= 0 {
			g.mu.Unlock()
			return nil
		}
		changed := g.changedLocked()
		g.mu.Unlock()
		d = sleepUntilChange(ctx, d, changed)
	}
}

// sleepUntilChange sleeps for d, or until changed closes or ctx ends, and returns the remaining
// time.
func sleepUntilChange(ctx context.Context, d time.Duration, changed <-chan struct{}) time.Duration {
	began := time.Now()
	select {
	case <-time.After(d):
		return 0
	case <-changed:
	case <-ctx.Done():
	}
	return max(d-time.Since(began), 1) // not 0: the caller must check the gate again
}

// wait is called with the lock held. It releases the lock and returns when the pause changes or ctx
// ends.
func (g *gate) wait(ctx context.Context, at waitPlace) {
	count := &g.waitingBetweenItems
	if at == insideItem {
		count = &g.waitingInItem
	}
	*count++
	changed := g.changedLocked()
	g.unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	g.mu.Lock()
	*count--
	g.mu.Unlock()
}

// lock locks mu, whose holder may wait at the gate with it, as on a full disk. Until then the caller waits inside its
// item, so that a pause takes effect. At the end of the work it goes on.
func (g *gate) lock(ctx context.Context, mu *sync.Mutex) {
	if mu.TryLock() {
		return
	}
	g.mu.Lock()
	g.waitingInItem++
	g.unlock()
	mu.Lock()
	g.mu.Lock()
	g.waitingInItem--
	g.mu.Unlock()
	_ = g.checkpoint(ctx, insideItem)
}

// start starts a process, after waiting for a pause to end. It does not hold the lock during the
// start, because a keeper may take long and other work on the operation must go on. A pause during
// the start either makes the keeper refuse it (keeper.ErrUnwanted), or stops the process here.
func (g *gate) start(ctx context.Context, start keeper.Starter, command keeper.Command) (keeper.Running, error) {
	for {
		if err := g.checkpoint(ctx, insideItem); err != nil {
			return nil, err
		}
		p, err := start(ctx, command)
		if errors.Is(err, keeper.ErrUnwanted) && g.PauseRequested() {
			continue
		}
		if err == nil {
			g.started(p)
		}
		return p, err
	}
}

// started adds a process that has just begun.
func (g *gate) started(p keeper.Running) {
	g.mu.Lock()
	g.addLocked(p)
	if g.requested {
		_ = p.Stop() // fails only if the process has just ended
	}
	g.unlock()
}

func (g *gate) addLocked(p keeper.Running) {
	if g.processes == nil {
		g.processes = make(map[keeper.Running]struct{})
	}
	g.processes[p] = struct{}{}
}

// attach adds a process that an earlier daemon started, and stops or continues it to match the
// gate.
func (g *gate) attach(p keeper.Running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addLocked(p)
	if g.requested {
		_ = p.Stop() // fails only if the process has just ended
	} else {
		_ = p.Continue() // fails only if the process has just ended
	}
}

// kill ends all processes without a grace period.
func (g *gate) kill(cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.processes {
		p.Kill(cause)
	}
}

// ended removes a process.
func (g *gate) ended(p keeper.Running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.processes, p)
	if isCutOff(p) {
		g.noteCutOffLocked()
	}
}
