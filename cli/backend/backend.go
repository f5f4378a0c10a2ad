// Package backend is what the commands work on, with and without a daemon.
//
//	command ──▶ Backend ──▶ remote     the daemon that holds the storage, over HTTP
//	                   └──▶ directory  the storage directory, when no daemon answers
//
// A command is written once, against the interfaces here. [Target.Open] chooses: it uses the daemon of --server, or
// else the daemon that holds the storage, or else the directory. There, reads show the files, and requests are files
// that the next daemon carries out. What only a daemon can do takes [Target.Connect].
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
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
	Lanes
	Storage
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
	Lanes(ctx context.Context) (*statefs.LanesStatus, error)
	ControlLane(ctx context.Context, lane string, action client.LaneAction, hold statefs.LaneHold) error
	SetLaneCapacity(ctx context.Context, lane string, capacity int) error
	ResetLaneCapacity(ctx context.Context, lane string) error
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

// Target names a storage, and how to reach it.
type Target struct {
	Config *config.Loaded
	// Server is the address of a daemon, "" for the daemon that holds the storage.
	Server string
	// Catalog has the definitions and handlers of the program.
	Catalog catalog.Options
	// Notice tells a person what takes time.
	Notice func(format string, args ...any)
}

// Open returns the backend of a daemon, or of the storage directory if no daemon answers and none was named.
func (t *Target) Open(ctx context.Context) (*Backend, error) {
	c, err := t.Connect(ctx)
	if err == nil {
		return Remote(c), nil
	}
	if !client.Unreachable(err) || t.address() != "" {
		return nil, err
	}
	tree, err := t.tree(err)
	if err != nil {
		return nil, err
	}
	d := &directory{tree: tree, target: t, conf: t.Config}
	return &Backend{
		Operations: d, Logs: d, Requests: d, Lanes: d, Storage: d,
		Away: tree.Dir(), Close: func() { _ = tree.Close() },
	}, nil
}

// Remote returns the backend of a daemon.
func Remote(c *client.Client) *Backend {
	r := remote{c}
	return &Backend{Operations: r, Logs: r, Requests: r, Lanes: r, Storage: r, Client: c, Close: c.Close}
}

// tree opens the storage directory for a command that works without a daemon; away is the reason why there is
// no daemon. It creates nothing.
func (t *Target) tree(away error) (*statefs.Tree, error) {
	info, err := os.Stat(filepath.Join(t.Config.Storage, "jobs"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, exit.NotFoundf("there is no storage directory at %s, and %w", t.Config.Storage, away)
	}
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return statefs.Open(t.Config.Storage, statefs.Options{Durability: t.Config.Durability})
}

// RemoveForeign removes the marker and the requests of a foreign operation from the directory, like rm(1), and returns
// the names of the files.
func (t *Target) RemoveForeign(id statefs.ID) ([]string, error) {
	tree, err := t.tree(errors.New("sweep --force works on it"))
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return tree.RemoveForeign(id)
}
