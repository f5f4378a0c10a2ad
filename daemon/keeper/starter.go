package keeper

import (
	"context"
	"errors"
	"fmt"
)

// ErrKeeperDied is the Exit.Err of a command whose keeper process died before it. The kernel has
// killed the command, and the rest of its tree was ended.
var ErrKeeperDied = errors.New("the keeper process that held the command died, and the command with it")

// ErrNoKeeper is wrapped by the error of a start for which no keeper process is available: nothing
// was begun.
var ErrNoKeeper = errors.New("no keeper process can be had")

// ErrUnwanted is wrapped by the error of a start that was withdrawn before its command began; see
// Command.Wanted.
var ErrUnwanted = errors.New("the command did not begin: it was not wanted any more")

// CauseKeeperEnds is the Exit.Cause of a command that was ended because its keeper process shut down.
const CauseKeeperEnds = "the keeper was told to end"

// Key identifies one command of one run of an operation.
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

// A Starter starts a command as a child of this process (InProcess) or of a keeper process (Pool.Start), and returns
// when its program has been executed. See the function Start for the errors. It is safe for concurrent use.
type Starter func(ctx context.Context, c Command) (Running, error)

// Running is a command that was started. It is safe for concurrent use.
type Running interface {
	Controls
	Ending
}

// Controls act on a command that was started.
type Controls interface {
	// Stop and Continue behave as for a Process. Errors wrap ErrEnded when the command has exited
	// or is being ended.
	Stop() error
	Continue() error
	// End ends the command and all its descendants, and returns at once.
	End(cause string)
	// Kill is End without a grace period: living processes get SIGKILL at once, even when End was
	// called before.
	Kill(cause string)
}

// Ending tells which command it is and how it ends.
type Ending interface {
	// PID is the PID of the leader, which is also the number of its process group and session; 0
	// when the command ended before it was found.
	PID() int
	// Done is closed when no process of the command's tree is left.
	Done() <-chan struct{}
	// Exit waits for Done and returns how the command ended.
	Exit() Exit
	// Acknowledge confirms that the end is recorded: the keeper may forget the command and its exit
	// report.
	Acknowledge()
}

// InProcess starts a command as a child of this process. The command outlives it, but its end is then
// not observed.
func InProcess(_ context.Context, c Command) (Running, error) {
	p, err := Start(c) //nolint:contextcheck // the command outlives the call
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Acknowledge does nothing: a Process leaves no report behind.
func (p *Process) Acknowledge() {}
