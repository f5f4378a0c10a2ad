package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
	"github.com/jobdir/jobdir/stream"
)

// Health describes the condition of the daemon.
type Health struct {
	// Ready reports that the storage is in order and requests are carried out.
	Ready bool
	// Draining reports that the daemon starts no more work.
	Draining bool
	// Watch names how changes in jobs/ are detected, and why if not by inotify.
	Watch watch.Mode
	// Live counts the live operations by state.
	Live map[statefs.State]int
	// Counters are named counters since the start of the daemon.
	Counters map[string]uint64
	// FailingOperations are the operations whose reconcile fails and is retried.
	FailingOperations []FailingOperation
}

// FailingOperation is a failure that repeats, such as writing a record to a full disk.
type FailingOperation struct {
	ID    statefs.ID `json:"id,omitzero"`
	Error string     `json:"error"`
	Since time.Time  `json:"since"`
	Tries int        `json:"tries"`
}

// Status gives access to state that only the daemon holds. Its methods are safe for concurrent use.
type Status interface {
	Health() Health
	// Sweep sweeps now; with dryRun it only returns the findings.
	Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error)
	// DiskFailed stops the daemon after a request met a disk error.
	DiskFailed(err error)
	// RecordUnreadable notifies the daemon that the record of a live operation is unusable or gone.
	RecordUnreadable(id statefs.ID)
	// Ready is closed when the daemon has loaded every live operation and reconciles it.
	Ready() <-chan struct{}
	// States counts the daemon's live operations by state; it is cheap.
	States() map[statefs.State]int
	// CarriedOut returns the requests that the daemon has carried out and could not make durable yet, as on a full
	// disk. managed reports whether it manages the operation.
	CarriedOut(id statefs.ID) (requests statefs.NameSet, managed bool)
	// Stats returns the statistics of the lanes.
	Stats() tally.Stats
	// Live returns the daemon's live operations.
	Live() []history.Live
	// LiveIndex returns the live table, and the IDs whose markers may differ from it at this moment, with what is known
	// of each. An operation that the daemon has not loaded has no row. ok is false while only a listing of jobs/ can
	// tell which operations are live.
	LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, ok bool)
	// Waiting returns why a live operation does not run; false when it runs or is unknown to the daemon.
	Waiting(id statefs.ID) (statefs.Waiting, bool)
	// Follow registers a reader of an operation, which need not exist, until leave is called. Until then every
	// change of the operation's waiting reason is an event. A reader of the stream passes wake, a reader of events
	// alone passes nil: only for the former does the log name the waiting reason. wake is called once, when the log
	// has that line, and must not block.
	Follow(id statefs.ID, wake func()) (leave func())
	// Lanes returns the state of the lanes and limits. ReconcileLanes returns after the daemon has read the lane files.
	Lanes() statefs.LanesStatus
	ReconcileLanes()
	// Outbox returns a summary of the outbox; it visits every entry in memory. OutboxLines returns the entries that
	// match a query, the oldest first, and their total number. ReconcileEntry returns after the daemon has reconciled
	// an entry and carried out the requests about it.
	Outbox() statefs.OutboxStatus
	OutboxLines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int)
	ReconcileEntry(ctx context.Context, name statefs.EntryName) error
	// AwaitEntry returns a channel that is closed when a delivery attempt that starts after this call ends, and when
	// the entry is finished. The caller must call stop.
	AwaitEntry(name statefs.EntryName) (done <-chan struct{}, stop func())
	// RequestDeliveries retries or drops many entries. It returns when that is durable, with an error for each
	// unchanged entry. Of the retried entries, one per target is attempted at once.
	RequestDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
		args statefs.Args) (map[statefs.EntryName]error, error)
	// Schedules returns the schedules of all jobs, sorted by address.
	Schedules() ([]schedule.Status, error)
	// Delete removes a finished operation, with the errors of history.Store.Delete.
	Delete(ctx context.Context, id statefs.ID) error
	// Pin protects an operation from deletion, or ends that. The error wraps history.ErrUnknown if it does not exist.
	Pin(ctx context.Context, id statefs.ID, pinned bool) error
	// Prune deletes everything past its retention; with dryRun it only returns the victims.
	Prune(ctx context.Context, dryRun bool) ([]history.Victim, error)
}

// Config configures a Server. Tree, Catalog, Status and History are required.
type Config struct {
	Tree    *statefs.Tree
	Catalog *catalog.Catalog
	Status  Status
	// History is the index of finished operations.
	History *history.Store
	// Events is the event log; nil: events are not served.
	Events *events.Log
	// Intake turns submits into operations; nil: New makes one, which no daemon informs about live operations.
	Intake *submit.Intake
	// Tokens, Hosts, Insecure and Limits are those of front.Config.
	Tokens   []front.Token
	Hosts    []string
	Insecure bool
	Limits   front.Limits
	// Version is shown by /readyz and /openapi.json.
	Version string
	// Logger receives the faults inside the server; nil: none.
	Logger *slog.Logger
	// Watch configures the watches on jobs/ and on logs; the zero value suits most uses.
	Watch watch.Options
}

// Server serves a storage directory over HTTP. It reads files, submits and writes requests; it never moves a marker.
type Server struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	status  Status
	history *history.Store
	events  *events.Log
	intake  *submit.Intake
	front   *front.Server
	version string
	log     *slog.Logger

	hub         *hub
	pages       *pages
	document    []byte // openapi.json
	ownRecords  ownRecords
	strangers   ownRecords // foreign markers that lists have met
	definitions definitionCache

	// heartbeat is the interval of the heartbeats in event streams.
	heartbeat time.Duration
	// pong is how long a WebSocket client has to answer a ping.
	pong time.Duration
}

// New prepares a server and opens its watches. The caller must call Serve, or else Close.
func New(c Config) (*Server, error) {
	s := &Server{
		tree: c.Tree, catalog: c.Catalog, status: c.Status, history: c.History, events: c.Events, heartbeat: stream.Heartbeat,
		pong: stream.Heartbeat, intake: c.Intake, version: c.Version, log: c.Logger,
	}
	if s.intake == nil {
		s.intake = submit.NewIntake(submit.Config{Tree: c.Tree})
		s.intake.Ready()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.pages, err = newPages(); err != nil {
		return nil, err
	}
	table := s.table()
	s.front, err = front.New(front.Config{
		Routes: table, Hint: "jobs are at /{group}/{job}, all routes are in /openapi.json",
		Refusal: refusalOf, Fault: s.fault, Quota: c.Tree.Descriptors.ForReader, Stopped: stream.ErrShutdown,
		Tokens: c.Tokens, Hosts: c.Hosts, Insecure: c.Insecure, Limits: c.Limits, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	if s.document, err = front.Describe(table, "jobdir",
		"Long-running operations whose state is a directory. HEAD answers as GET would without starting anything.",
		s.version); err != nil {
		return nil, err
	}
	if s.hub, err = newHub(c.Tree, c.Watch); err != nil {
		return nil, err
	}
	return s, nil
}

// fault is called with each error that is no fault of the client.
func (s *Server) fault(err error) {
	s.status.Health() // checks whether the daemon can go on
	s.reportDiskFailure(err)
}

// Close releases the watches of a server whose Serve was never called.
func (s *Server) Close() error { return s.hub.close() }

// Drain refuses everything that starts an operation from now on, with 503 and Retry-After. Reads and requests still
// work.
func (s *Server) Drain() { s.front.Drain() }

// Serve accepts connections on all listeners until ctx ends, and closes them. It then ends the open streams, waits up
// to Limits.Stop for other answers, cuts off the rest, and returns when every goroutine has ended: nil, or the error
// that stopped it.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watchCtx, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatch()
	watched := make(chan error, 1)
	go func() {
		defer stop() // readers would wait for ever
		watched <- s.hub.Run(watchCtx)
	}()
	err := s.front.Serve(ctx, listeners...)
	endWatch()
	if failed := <-watched; failed != nil {
		err = errors.Join(fmt.Errorf("follow operations: %w", failed), err)
	}
	return err
}
