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
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/schedule"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
	"github.com/jobdir/jobdir/stream"
	"github.com/jobdir/jobdir/submit"
	"github.com/jobdir/jobdir/tally"
)

// Health is how the daemon is.
type Health struct {
	// Ready says that the storage is in order and requests are carried out.
	Ready bool
	// Draining says that no work is begun any more.
	Draining bool
	// Watch says how changes in jobs/ are noticed, and why if not by inotify.
	Watch watch.Mode
	// Live counts the operations in hand by state.
	Live map[statefs.State]int
	// Counters count since the daemon started, by name.
	Counters map[string]uint64
	// Troubles are operations that the daemon could not deal with and tries again.
	Troubles []Trouble
}

// Trouble is something that fails again and again, such as writing a record to a full disk.
type Trouble struct {
	ID    statefs.ID `json:"id,omitzero"`
	Error string     `json:"error"`
	Since time.Time  `json:"since"`
	Tries int        `json:"tries"`
}

// Status is what only the daemon knows. Its methods are called by many goroutines.
type Status interface {
	Health() Health
	// Sweep sweeps now, or with dryRun only says what would be done.
	Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error)
	// DiskFailed ends the daemon because of an error of the disk that a request met.
	DiskFailed(err error)
	// Ready is closed when the daemon knows all that lives and carries it out.
	Ready() <-chan struct{}
	// States counts what the daemon has in hand, by state, at no cost. Has reports whether it has an operation in hand.
	States() map[statefs.State]int
	Has(id statefs.ID) bool
	// Stats returns what lanes are like.
	Stats() tally.Stats
	// Live returns what the daemon has in hand.
	Live() []history.Live
	// Living returns the rows of what the daemon has in hand, and the IDs whose markers may say something else at this moment, with what
	// is known of each; an operation that is not in hand has no row. ok is false while only a listing tells what lives.
	Living() (rows *history.Living, unsettled []history.Live, ok bool)
	// Waiting says why a live operation does not run; false: it does, or is not in hand.
	Waiting(id statefs.ID) (statefs.Waiting, bool)
	// Followed says that somebody follows an operation, which need not be there, until leave is called: each reason for which it waits is an
	// event. wake is of a reader of its stream, and nil for one of its events alone: only for the first the log says why it waits. It is called
	// once when the log has a line of that, and must not block.
	Followed(id statefs.ID, wake func()) (leave func())
	// Lanes returns how the lanes and limits stand, and LookAtLanes has the daemon read the files of the lanes before it returns.
	Lanes() statefs.LanesStatus
	LookAtLanes()
	// Outbox says how the outbox is, at the cost of a look at all of it in memory; OutboxLines returns the entries that a query chooses, the oldest first,
	// and how many there are in all. LookAtEntry has an entry looked at, and what is asked of it carried out, before it returns.
	Outbox() statefs.OutboxStatus
	OutboxLines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int)
	LookAtEntry(ctx context.Context, name statefs.EntryName) error
	// AwaitEntry says when an entry was tried: done is closed when a try of it ends that begins from now on, and when it is done with. stop must be called
	// in the end.
	AwaitEntry(name statefs.EntryName) (done <-chan struct{}, stop func())
	// AskDeliveries has many entries retried or given up, and returns when that is durable, with an error for each that is left as it is. Of those that are
	// retried each target is tried with one at once.
	AskDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAsk, args statefs.Args) (map[statefs.EntryName]error, error)
	// Schedules returns the schedules of all jobs, by their addresses.
	Schedules() ([]schedule.Status, error)
	// Delete removes an operation that has ended, with the errors of history.Store.Delete.
	Delete(ctx context.Context, id statefs.ID) error
	// Pin keeps an operation from being deleted, or ends that. The error wraps history.ErrUnknown when there is none.
	Pin(ctx context.Context, id statefs.ID, pinned bool) error
	// Prune deletes what is not to be kept longer, or with dryRun only says what that is.
	Prune(ctx context.Context, dryRun bool) ([]history.Victim, error)
}

// Config says what a Server serves. Tree, Catalog, Status and History are needed.
type Config struct {
	Tree    *statefs.Tree
	Catalog *catalog.Catalog
	Status  Status
	// History is the index of what has ended.
	History *history.Store
	// Events are what happens; nil: nobody can follow it.
	Events *events.Log
	// Intake makes operations of submits; nil: one of its own, for which no daemon tells of live operations.
	Intake *submit.Intake
	// Tokens are needed on every connection but those of a unix socket, if there are any.
	Tokens []Token
	// Hosts are further names of this daemon, as name or name:port. Loopback names and the listen addresses are known.
	Hosts []string
	// Insecure allows listening beyond loopback without a token.
	Insecure bool
	Limits   Limits
	// Version is the one that /readyz and /openapi.json show.
	Version string
	// Logger gets what goes wrong inside the server; nil: none.
	Logger *slog.Logger
	// Watch is for the watches on jobs/ and on logs; the zero value is right for most.
	Watch watch.Options
}

// Server is the HTTP face of a storage directory. It reads files, submits and writes requests; it never moves a marker.
type Server struct {
	tree     *statefs.Tree
	catalog  *catalog.Catalog
	status   Status
	history  *history.Store
	events   *events.Log
	intake   *submit.Intake
	guard    *guard
	limits   Limits
	insecure bool
	version  string
	log      *slog.Logger

	hub      *hub
	routers  *routers
	pages    *pages
	document []byte // openapi.json
	ours     ours
	kept     keptDefinitions

	// heartbeat is the time between two signs of life to who follows events.
	heartbeat time.Duration
	// pong is how long the client of a WebSocket has to answer one.
	pong    time.Duration
	sockets sync.WaitGroup // the WebSockets that are open

	draining atomic.Bool
	failures atomic.Uint64
}

// New prepares a server: its watches exist when it returns. The caller calls Serve, or Close when it never does.
func New(c Config) (*Server, error) {
	tokens, err := newTokens(c.Tokens)
	if err != nil {
		return nil, err
	}
	s := &Server{
		tree: c.Tree, catalog: c.Catalog, status: c.Status, history: c.History, events: c.Events, heartbeat: stream.Heartbeat, pong: stream.Heartbeat, intake: c.Intake, guard: newGuard(c.Hosts, tokens),
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

// Drain has everything that starts an operation refused from now on, with 503 and Retry-After. Reading and requests go on.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve answers on all listeners until ctx ends, and closes them. It then ends the open streams, waits for other answers a short
// time (Limits.Stop), cuts off what is left, and returns when every goroutine has ended: nil, or why it stopped by itself.
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
		// OPTIONS * would be answered without the guard.
		DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, len(listeners)+1)
	crowd := newCrowd(s.tree.RoomForReader, &connections)
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

// stop ends the answers that are under way, the slow ones by closing their connections.
func (s *Server) stop(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Stop)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// countConnections returns a hook that follows each connection from its first state to its last, so that the server can be
// waited for. net/http calls it for a new connection before its goroutine exists.
func countConnections(open *sync.WaitGroup) func(net.Conn, http.ConnState) {
	return func(c net.Conn, state http.ConnState) {
		noteState(c, state)
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Done()
		case http.StateActive, http.StateIdle:
		}
	}
}

// checkListeners refuses to be reachable from other machines by anybody who likes.
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
