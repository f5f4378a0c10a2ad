package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/keeper"
)

// Keepers are the keeper processes of the storage, in whose hands commands outlive the daemon: a *keeper.Pool.
type Keepers interface {
	keeper.Starter
	// Prepare starts the keeper that new commands need.
	Prepare(ctx context.Context) error
	// Find returns a command that is there, or how it ended.
	Find(key keeper.Key, report string) (keeper.Running, bool)
	// Held lists what living keepers have in hand.
	Held() []keeper.Held
	// Silent lists the keepers that live and do not answer.
	Silent() []keeper.Silence
	// PIDs are the process numbers of the living keepers.
	PIDs() []int
	// Retire has the keepers end with their last command.
	Retire()
}

// commands are the commands of one run that are not simply waited for: those that an earlier daemon has started, and those whose end
// is not written down yet.
type commands struct {
	mu      sync.Mutex
	adopted map[int]adopted // by their number in the run
	untaken []keeper.Running
}

// adopted is a command that an earlier daemon has started.
type adopted struct {
	keeper.Running

	number int
	name   string // of its item
}

func (c *commands) adopt(a adopted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.adopted == nil {
		c.adopted = make(map[int]adopted)
	}
	c.adopted[a.number] = a
}

// claim hands out a command that an earlier daemon has started, once; nil when there is none of this number.
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

// has reports whether an earlier daemon has started the command of this number and nobody has claimed it.
func (c *commands) has(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.adopted[number]
	return ok
}

// waiting lists the commands of an earlier daemon that nobody has claimed, in the order of their numbers.
func (c *commands) waiting() []adopted {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []adopted
	for _, a := range c.adopted {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b adopted) int { return cmp.Compare(a.number, b.number) })
	return list
}

// ended notes a command whose end the record is about to say.
func (c *commands) ended(p keeper.Running) {
	c.mu.Lock()
	c.untaken = append(c.untaken, p)
	c.mu.Unlock()
}

// taken tells the keeper that the ends are written down.
func (c *commands) taken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.untaken {
		p.Taken()
	}
	c.untaken = nil
}

// The causes for which a command is ended, as the keeper is told: the daemon that reads them may be the next one.
const (
	causeCancelled   = "cancelled"
	causeInterrupted = "interrupted"
)

// causeText is how a cause is told to the keeper.
func causeText(cause error) string {
	switch work, ok := errors.AsType[*workError](cause); {
	case ok:
		return work.code + ": " + work.Error()
	case errors.Is(cause, ErrInterrupted):
		return causeInterrupted
	}
	return causeCancelled
}

// causeOf returns why a command was ended, nil when it ended by itself or because its own time was over.
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
		return &workError{code: code, err: fmt.Errorf("%w%s", errStalled, rest)} // what a stall leads to is decided by this error
	}
	return &workError{code: code, err: errors.New(message)}
}
