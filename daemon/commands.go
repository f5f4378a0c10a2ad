package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/daemon/keeper"
)

// commands are the commands of one run that an earlier daemon started, and those whose end is not
// recorded yet.
type commands struct {
	mu             sync.Mutex
	adopted        map[int]adoptedCommand // by their number in the run
	unacknowledged []keeper.Running
}

// adoptedCommand is a command that an earlier daemon started.
type adoptedCommand struct {
	keeper.Running

	number int
	name   string // of its item
}

func (c *commands) adopt(a adoptedCommand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.adopted == nil {
		c.adopted = make(map[int]adoptedCommand)
	}
	c.adopted[a.number] = a
}

// claim returns the adopted command with this number, once; nil if there is none.
func (c *commands) claim(number int) keeper.Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.adopted[number]
	if !ok {
		return nil
	}
	delete(c.adopted, number)
	return a.Running
}

// hasUnclaimed reports whether there is an adopted command with this number that was not claimed.
func (c *commands) hasUnclaimed(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.adopted[number]
	return ok
}

// unclaimed returns the adopted commands that were not claimed, in the order of their numbers.
func (c *commands) unclaimed() []adoptedCommand {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []adoptedCommand
	for _, a := range c.adopted {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b adoptedCommand) int { return cmp.Compare(a.number, b.number) })
	return list
}

// noteEnd adds a command whose end is about to be recorded.
func (c *commands) noteEnd(p keeper.Running) {
	c.mu.Lock()
	c.unacknowledged = append(c.unacknowledged, p)
	c.mu.Unlock()
}

// acknowledge tells the keepers that the ends are recorded.
func (c *commands) acknowledge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.unacknowledged {
		p.Acknowledge()
	}
	c.unacknowledged = nil
}

// The causes with which the daemon asks a keeper to end a command. The next daemon may read them.
const (
	causeCancelled   = "cancelled"
	causeInterrupted = "interrupted"
)

// causeText encodes a cause for the keeper. causeOf decodes it.
func causeText(cause error) string {
	switch work, ok := errors.AsType[*workError](cause); {
	case ok:
		return work.code + ": " + work.Error()
	case errors.Is(cause, ErrInterrupted):
		return causeInterrupted
	}
	return causeCancelled
}

// causeOf returns why a command was ended, nil if it ended by itself or reached its own timeout.
func causeOf(exit keeper.Exit) error {
	switch {
	case exit.Cause == "", exit.TimedOut:
		return nil
	case exit.Cause == causeInterrupted, exit.Cause == keeper.CauseKeeperEnds:
		return ErrInterrupted
	case exit.Cause == causeCancelled:
		return ErrCancelled
	}
	code, message, ok := strings.Cut(exit.Cause, ": ")
	if !ok {
		return nil
	}
	if rest, stalled := strings.CutPrefix(message, errStalled.Error()); stalled {
		// errStalled decides how a stall is handled
		return &workError{code: code, err: fmt.Errorf("%w%s", errStalled, rest)}
	}
	return &workError{code: code, err: errors.New(message)}
}
