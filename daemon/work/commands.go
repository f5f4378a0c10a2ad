package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// commands are the commands of one run: how they are ended, the commands that an earlier daemon
// started, and the commands whose end is not recorded yet.
type commands struct {
	usage      resourceUsage // by commands that have ended
	pid        atomic.Int64  // of the command of the whole run; 0 before it starts
	pidSettled atomic.Bool   // that command has run for some time
	detached   atomic.Bool   // a command continues without the daemon
	forced     atomic.Bool   // commands get no grace period when they are ended
	detaching  chan struct{} // closed when the daemon stops and leaves commands running

	mu             sync.Mutex
	earlier        map[int]Command // of an earlier daemon, by their number in the run
	unacknowledged []keeper.Running
}

// Command is a command that an earlier daemon started. A keeper holds it, or its exit report exists.
type Command struct {
	keeper.Running

	number int
	name   string // of its item
}

func (c *commands) adopt(a Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.earlier == nil {
		c.earlier = make(map[int]Command)
	}
	c.earlier[a.number] = a
}

// claim returns the adopted command with this number, once; nil if there is none.
func (c *commands) claim(number int) keeper.Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.earlier[number]
	if !ok {
		return nil
	}
	delete(c.earlier, number)
	return a.Running
}

// hasUnclaimed reports whether there is an adopted command with this number that was not claimed.
func (c *commands) hasUnclaimed(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.earlier[number]
	return ok
}

// unclaimed returns the adopted commands that were not claimed, in the order of their numbers.
func (c *commands) unclaimed() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.earlier), func(a, b Command) int { return cmp.Compare(a.number, b.number) })
}

// noteEnd adds a command whose end is about to be recorded.
func (c *commands) noteEnd(p keeper.Running) {
	c.mu.Lock()
	c.unacknowledged = append(c.unacknowledged, p)
	c.mu.Unlock()
}

// PID returns the process ID of the command of the whole run, 0 before it starts, and whether the
// command has run for some time.
func (c *commands) PID() (pid int, settled bool) { return int(c.pid.Load()), c.pidSettled.Load() }

// Detached reports whether a command continues without the daemon.
func (c *commands) Detached() bool { return c.detached.Load() }

// end ends a command of the run for a cause.
func (c *commands) end(p keeper.Running, cause error) {
	if c.forced.Load() {
		p.Kill(causeText(cause))
		return
	}
	p.End(causeText(cause))
}

// await waits until a command has ended, and ends the command when ctx ends. It returns false if the
// daemon stops first and leaves the command to its keeper. The keeper then enforces the grace period
// of a command that is being ended.
func (c *commands) await(ctx context.Context, p keeper.Running) (ended bool) {
	select {
	case <-p.Done():
		return true
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrDetached) {
		c.end(p, cause)
	}
	select {
	case <-p.Done():
		return true
	case <-c.detaching:
		return false
	}
}

// shutdownNotice is how much later than its commands the daemon may receive SIGTERM when the
// machine shuts down.
const shutdownNotice = 250 * time.Millisecond

// endedByShutdown reports whether a machine shutdown ended the command: it sends SIGTERM to the
// daemon as well. Such an exit is not a result of the work. Another sender of SIGTERM leaves no
// trace, so the function waits up to shutdownNotice for the daemon's own signal.
func (c *commands) endedByShutdown(ctx context.Context, exit keeper.Exit) bool {
	if exit.Signal != "SIGTERM" || exit.Cause != "" || ctx.Err() != nil {
		return notify.IsClosed(c.detaching) && exit.Signal == "SIGTERM" && exit.Cause == ""
	}
	select {
	case <-c.detaching:
		return true
	case <-ctx.Done(): // the run counts as interrupted then
	case <-time.After(shutdownNotice):
	}
	return notify.IsClosed(c.detaching)
}

// Acknowledge tells the keepers that the ends are recorded.
func (c *commands) Acknowledge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.unacknowledged {
		p.Acknowledge()
	}
	c.unacknowledged = nil
}

// causeText encodes a cause for the keeper: a word of ends, or the code and the text of an error. causeOf decodes it.
func causeText(cause error) string {
	if known := findEnd(func(e end) bool { return errors.Is(cause, e.err) }); known.err != nil {
		return known.word
	}
	if work, ok := errors.AsType[*Error](cause); ok {
		return work.Code + ": " + work.Error()
	}
	return "failed: " + cause.Error()
}

// causeOf returns why a command was ended, nil if it ended by itself or reached its own timeout.
func causeOf(exit keeper.Exit) error {
	switch {
	case exit.Cause == "", exit.TimedOut:
		return nil
	case exit.Cause == keeper.CauseKeeperEnds:
		return ErrInterrupted
	}
	if known := findEnd(func(e end) bool { return e.word == exit.Cause }); known.err != nil {
		return known.err
	}
	code, message, ok := strings.Cut(exit.Cause, ": ")
	if !ok {
		return nil
	}
	if rest, stalled := strings.CutPrefix(message, ErrStalled.Error()); stalled {
		// ErrStalled decides how a stall is handled
		return &Error{Code: code, Err: fmt.Errorf("%w%s", ErrStalled, rest)}
	}
	return &Error{Code: code, Err: errors.New(message)}
}

// resourceUsage adds up what the commands of a run used: the sum of their processor time, and the
// largest memory of any of them. It is safe for concurrent use.
type resourceUsage struct {
	mu  sync.Mutex
	sum *statefs.ResourceUse // nil while no command has ended
}

func (u *resourceUsage) add(exit keeper.Exit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum == nil {
		u.sum = new(statefs.ResourceUse)
	}
	u.sum.UserSeconds += exit.UserSeconds
	u.sum.SystemSeconds += exit.SystemSeconds
	u.sum.PeakMemory = max(u.sum.PeakMemory, exit.PeakMemory)
}

// addTo returns the usage of an operation including this run, given that of its earlier runs.
func (u *resourceUsage) addTo(earlier *statefs.ResourceUse) *statefs.ResourceUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum == nil {
		return earlier
	}
	all := *u.sum
	if earlier != nil {
		all.UserSeconds += earlier.UserSeconds
		all.SystemSeconds += earlier.SystemSeconds
		all.PeakMemory = max(all.PeakMemory, earlier.PeakMemory)
	}
	return &all
}

// exitError returns the error of an exit, or nil for exit code 0.
func exitError(exit keeper.Exit) error {
	switch {
	case errors.Is(exit.Err, keeper.ErrKeeperDied):
		return &Error{Code: "keeper_died", Err: exit.Err}
	case exit.Signal != "":
		return &Error{Code: "signal", Err: fmt.Errorf("ended by %s", exit.Signal)}
	case exit.Code > 0:
		return &Error{Code: "exit_code", Err: fmt.Errorf("exit code %d", exit.Code)}
	case exit.Code < 0:
		return &Error{Code: "lost", Err: errors.Join(errors.New("the exit code is not known"), exit.Err)}
	}
	return nil
}
