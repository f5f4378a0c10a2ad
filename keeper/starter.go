package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrKeeperDied is the Exit.Err of a command whose keeper process ended before it: the kernel killed the command, and what was
// left of its tree was ended.
var ErrKeeperDied = errors.New("the keeper process that held the command died, and the command with it")

// CauseKeeperEnds is the Exit.Cause of a command that was ended because its keeper process was told to end.
const CauseKeeperEnds = "the keeper was told to end"

// Key tells one command of one run of an operation from all others.
type Key struct {
	// Operation is the ID of the operation.
	Operation string `json:"id"`
	// Run is the number of the run, from 1.
	Run int `json:"run"`
	// Item is the number of the item, from 1; 0 is the command of the whole run.
	Item int `json:"item,omitempty"`
}

func (k Key) String() string {
	if k.Item == 0 {
		return fmt.Sprintf("%s run %d", k.Operation, k.Run)
	}
	return fmt.Sprintf("%s run %d item %d", k.Operation, k.Run, k.Item)
}

// A Starter starts commands: as children of this process (InProcess), or of a keeper process (Pool). It is safe for concurrent
// use.
type Starter interface {
	// Start starts a command and returns when its program has been executed. See the function Start for the errors.
	Start(ctx context.Context, c Command) (Running, error)
}

// Running is a command that was started. It is safe for concurrent use.
type Running interface {
	// PID is the process number of the leader, its process group and its session; 0 when the command ended before it was found.
	PID() int
	// Stop and Continue are those of a Process. Errors wrap ErrEnded when the command has exited or is being ended.
	Stop() error
	Continue() error
	// End ends the command and all that it has started, and returns at once.
	End(cause string)
	// SetTimeout changes how long the command may run, counted from its start, without the time in which it was stopped.
	SetTimeout(of time.Duration) error
	// Done is closed when nothing of the command's tree is left.
	Done() <-chan struct{}
	// Exit waits for Done and tells how the command ended.
	Exit() Exit
	// Adopted says that the command was there before Start was called.
	Adopted() bool
	// Taken says that what Exit tells is written down: nobody needs to be told again.
	Taken()
}

// InProcess starts commands as children of this process. They outlive it, but nobody sees their end then.
type InProcess struct{}

// Start is the function Start.
func (InProcess) Start(_ context.Context, c Command) (Running, error) {
	p, err := Start(c) //nolint:contextcheck // the command outlives the call
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Adopted is false: a Process is started by its own process.
func (p *Process) Adopted() bool { return false }

// Taken does nothing: what a Process knows goes with it.
func (p *Process) Taken() {}
