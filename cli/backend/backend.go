// Package backend is what the commands work on, with and without a daemon.
//
//	command ──▶ Backend ──▶ remote     the daemon that holds the storage, over HTTP
//	                   └──▶ directory  the storage directory, when no daemon answers
//
// A command is written once, against the interfaces here. [Target.Open] chooses: it uses the daemon of --server, or
// else the daemon that holds the storage, or else the directory. There, reads show the files, and requests are files
// that the next daemon carries out. What only a daemon can do takes [Target.Connect].
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	target     which backend a command gets            target.go, jobs.go
//	remote     a daemon, over HTTP                     remote.go
//	directory  the storage directory without a daemon  directory.go, directory_lanes.go, directory_requests.go,
//	                                                   directory_storage.go
//	interface  what commands use                       backend.go, ids.go
package backend

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// Backend is a storage that a command works on.
type Backend struct {
	Operations
	Logs
	Requests
	Storage

	Lanes Lanes
	// Away is the storage directory when no daemon answers, and "" with a daemon.
	Away string
	// Client is the daemon, nil without one.
	Client *client.Client
	Close  func()
}

// Operations finds and reads operations.
type Operations interface {
	// LiveIDs returns the IDs of the live operations.
	LiveIDs(ctx context.Context) ([]statefs.ID, error)
	// Numbered returns the operations with a number, also ended ones.
	Numbered(ctx context.Context, number uint64) ([]statefs.ID, error)
	// Live lists the live operations by number; with attention only operations that wait for a person.
	Live(ctx context.Context, attention bool) ([]client.Operation, error)
	// Ended lists ended operations, the newest first.
	Ended(ctx context.Context, q *history.Query) (*client.Page, error)
	// Operation reads an operation; Raw has all that is known of it.
	Operation(ctx context.Context, id statefs.ID) (*client.Operation, error)
}

// Logs reads what the work writes. The caller closes what a method returns.
type Logs interface {
	Log(ctx context.Context, id statefs.ID, offset int64) (io.ReadCloser, error)
	// Follow writes the log until the operation ends; the footer is nil if no daemon sends one.
	Follow(ctx context.Context, id statefs.ID, offset int64, w io.Writer) (*client.Footer, error)
	// StepOutput returns the output of a step in a run, or in its last one for 0.
	StepOutput(ctx context.Context, id statefs.ID, step string, run int) (*client.StepOutput, error)
	// StepLog returns the last bytes of the output of a step.
	StepLog(ctx context.Context, id statefs.ID, step string, last int64) (io.ReadCloser, error)
}

// Requests starts and changes operations.
type Requests interface {
	// Submit starts the operations that JSON describes, one or a list.
	Submit(ctx context.Context, data json.RawMessage) (*Submitted, error)
	// TypedParams gives texts the types of the parameters of a job; nil if nothing is to be typed.
	TypedParams(ctx context.Context, group, job string, pairs map[string]string) (any, error)
	Request(ctx context.Context, id statefs.ID, r *Request) (*client.Answer, error)
	Retry(ctx context.Context, id statefs.ID, r *Retry) (*client.Retried, error)
}

// Lanes reads and changes lanes; [statefs.AllLanes] is every lane.
type Lanes interface {
	Status(ctx context.Context) (*statefs.LanesStatus, error)
	Control(ctx context.Context, lane string, action client.LaneAction, hold statefs.LaneHold) error
	SetCapacity(ctx context.Context, lane string, capacity int) error
	ResetCapacity(ctx context.Context, lane string) error
}

// Storage is what concerns no single operation: deliveries, schedules, old and stray files.
type Storage interface {
	Outbox(ctx context.Context, q *OutboxQuery) (*client.Outbox, error)
	// RequestDelivery requests an action on an entry, or on all of an operation, and returns the answers before an error.
	RequestDelivery(ctx context.Context, entry string, action statefs.DeliveryAction, args statefs.Args,
		wait time.Duration) ([]client.DeliveryAnswer, error)
	// EnableSchedule returns nil for the schedule if only the next daemon knows it.
	EnableSchedule(ctx context.Context, group, job string, on bool) (*client.Schedule, error)
	Prune(ctx context.Context, dryRun bool) (*client.Pruned, error)
	Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error)
}

// Submitted is the result of a submit: the operations, or the name of the file in new/ that waits for a daemon.
type Submitted struct {
	Operations []client.Submitted
	File       string
}

// Request is a request for an action on an operation.
type Request struct {
	Action statefs.Action
	// Params are the arguments of an action that concerns no step.
	Params []client.Arg
	// Args are those of an action on a step, and Values the values of a set, as text.
	Args   statefs.Args
	Values map[string]string
	// Wait is how long to wait for the effect; 0: not at all.
	Wait time.Duration
}

// Retry is a request to start operations again.
type Retry struct {
	Args        statefs.Args
	FailedItems bool
	// Await has a live operation retried before the answer comes, so that a wait does not end with its old state.
	Await bool
}

// OutboxQuery selects deliveries; zero fields select all.
type OutboxQuery struct {
	Status, Kind           []string
	Job, Target, OlderThan string
	Older                  time.Duration // OlderThan
	Limit                  int
}

// setValues parses texts into values: a parameter by its type, an output as JSON or else as text.
func setValues(types map[string]string, pairs map[string]string, args *statefs.Args) error {
	args.Values = make(map[string]json.RawMessage)
	for text, value := range pairs {
		var typed any = value
		name, _ := statefs.ParseValueName(text) // the command has checked it
		switch {
		case name.Step != "" && json.Valid([]byte(value)):
			typed = json.RawMessage(value)
		case name.Step == "":
			var err error
			if typed, err = client.TypedValue(name.Name, types[name.Name], value); err != nil {
				return err
			}
		}
		raw, err := json.Marshal(typed)
		if err != nil {
			return exit.Usagef("%s: %w", text, err)
		}
		args.Values[text] = raw
	}
	return nil
}
