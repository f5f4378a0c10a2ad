package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/schedule"
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
	// Tokens, if there are any, are required on every connection except those of a unix socket.
	Tokens []Token
	// Hosts are further names of this daemon, as name or name:port. Loopback names and the listen addresses are always
	// accepted.
	Hosts []string
	// Insecure allows listening on non-loopback addresses without a token.
	Insecure bool
	Limits   Limits
	// Version is shown by /readyz and /openapi.json.
	Version string
	// Logger receives the faults inside the server; nil: none.
	Logger *slog.Logger
	// Watch configures the watches on jobs/ and on logs; the zero value suits most uses.
	Watch watch.Options
}

// Server serves a storage directory over HTTP. It reads files, submits and writes requests; it never moves a marker.
type Server struct {
	tree     *statefs.Tree
	catalog  *catalog.Catalog
	status   Status
	history  *history.Store
	events   *events.Log
	intake   *submit.Intake
	guard    *guard
	confirms *confirmer
	limits   Limits
	insecure bool
	version  string
	log      *slog.Logger

	hub         *hub
	routers     *routers
	pages       *pages
	document    []byte // openapi.json
	ownRecords  ownRecords
	strangers   ownRecords // foreign markers that lists have met
	definitions definitionCache

	// heartbeat is the interval of the heartbeats in event streams.
	heartbeat time.Duration
	// pong is how long a WebSocket client has to answer a ping.
	pong    time.Duration
	sockets sync.WaitGroup // the WebSockets that are open

	draining atomic.Bool
	failures atomic.Uint64
}

// New prepares a server and opens its watches. The caller must call Serve, or else Close.
func New(c Config) (*Server, error) {
	tokens, err := newTokens(c.Tokens)
	if err != nil {
		return nil, err
	}
	s := &Server{
		tree: c.Tree, catalog: c.Catalog, status: c.Status, history: c.History, events: c.Events, heartbeat: stream.Heartbeat,
		pong: stream.Heartbeat, intake: c.Intake, guard: newGuard(c.Hosts, tokens), confirms: newConfirmer(),
		limits: c.Limits.withDefaults(), insecure: c.Insecure, version: c.Version, log: c.Logger,
	}
	if s.intake == nil {
		s.intake = submit.NewIntake(submit.Config{Tree: c.Tree})
		s.intake.Ready()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.pages, err = newPages(); err != nil {
		return nil, err
	}
	table := s.table()
	s.routers = newRouters(table)
	if s.document, err = describeRoutes(table, s.version); err != nil {
		return nil, err
	}
	if s.hub, err = newHub(c.Tree, c.Watch); err != nil {
		return nil, err
	}
	return s, nil
}

// Close releases the watches of a server whose Serve was never called.
func (s *Server) Close() error { return s.hub.close() }

// Drain refuses everything that starts an operation from now on, with 503 and Retry-After. Reads and requests still
// work.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve accepts connections on all listeners until ctx ends, and closes them. It then ends the open streams, waits up
// to Limits.Stop for other answers, cuts off the rest, and returns when every goroutine has ended: nil, or the error
// that stopped it.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if err := s.checkListeners(listeners); err != nil {
		errs := []error{err, s.Close()}
		for _, l := range listeners {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}
	base, endRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRequests(nil)
	var connections sync.WaitGroup
	server := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: s.limits.Header, IdleTimeout: s.limits.Idle, MaxHeaderBytes: maxRequest,
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState: countConnections(&connections), ConnContext: keepConn,
		// net/http would answer OPTIONS * without the guard.
		DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, len(listeners)+1)
	crowd := newConnLimiter(s.tree.Descriptors.ForReader, &connections)
	defer crowd.memory.stop()
	var serving, watching sync.WaitGroup
	watchCtx, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatch()
	watching.Go(func() {
		if err := s.hub.Run(watchCtx); err != nil {
			failed <- fmt.Errorf("follow operations: %w", err)
		}
	})
	for _, l := range listeners {
		serving.Go(func() {
			if err := server.Serve(listener{l, crowd}); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve on %s: %w", l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.Drain()
	endRequests(stream.ErrShutdown)
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx), server))
	serving.Wait()
	connections.Wait()
	s.sockets.Wait()
	endWatch()
	watching.Wait()
	return err
}

// stop waits for the answers that are under way, and closes the connections of slow ones.
func (s *Server) stop(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Stop)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// countConnections returns a hook that counts each connection from its first state to its last, so that Serve can wait
// for all of them. net/http calls it for a new connection before its goroutine exists.
func countConnections(open *sync.WaitGroup) func(net.Conn, http.ConnState) {
	return func(c net.Conn, state http.ConnState) {
		trackState(c, state)
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Done()
		case http.StateActive, http.StateIdle:
		}
	}
}

// checkListeners refuses to serve other machines without authentication, unless Insecure is set.
func (s *Server) checkListeners(listeners []net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("serve: no address to listen on")
	}
	if s.insecure || len(s.guard.tokens) > 0 {
		return nil
	}
	for _, l := range listeners {
		if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
			return fmt.Errorf("listen on %s: other machines can reach it, so it needs a token (--token-file) or an explicit --insecure", at)
		}
	}
	return nil
}
