package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// Daemon are the parts of a daemon that the resources ask, each through what it declares. Their methods are safe for
// concurrent use.
type Daemon struct {
	Condition  conditionStatus
	Operations operationsStatus
	Live       liveStatus
	Lanes      laneStatus
	Schedules  scheduleStatus
	Outbox     outboxStatus
	Retention  retentionStatus
	Counts     countStatus
}

type operationsStatus interface {
	operationStatus
	followStatus
}

// Config configures a Server. Tree, Catalog, Daemon, History and Intake are required.
type Config struct {
	Tree    *statefs.Tree
	Catalog *catalog.Catalog
	Daemon  Daemon
	// History is the index of finished operations.
	History *history.Store
	// Events is the event log; nil: events are not served.
	Events *events.Log
	// Intake turns submits into operations.
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
}

// Server serves a storage directory over HTTP. It reads files, submits and writes requests; it never moves a marker.
// It connects the resources to their routes.
type Server struct {
	daemon   conditionStatus
	front    *front.Server
	hub      *hub
	document []byte // openapi.json

	pages     *pages
	live      *liveTable
	lists     *lists
	streams   *streams
	start     *starter
	act       *actions
	retry     *retries
	bulks     *bulks
	retention *retention
	lanes     *laneControl
	schedules *scheduleList
	outbox    *outboxControl
	events    *eventStreams
	figures   *figures
	health    *health
}

// New prepares a server and opens its watch. The caller must call Serve, or else Close.
func New(c Config) (*Server, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{daemon: c.Daemon.Condition}
	var err error
	if s.pages, err = newPages(c.Catalog); err != nil {
		return nil, err
	}
	s.hub = newHub(c.Tree)
	c.Daemon.Operations.OnChange(s.hub.notify)
	s.connect(&c)
	table := s.table()
	s.front, err = front.New(front.Config{
		Routes: table, Hint: "jobs are at /{group}/{job}, all routes are in /openapi.json",
		Refusal: refusalOf, Fault: s.fault, Quota: c.Tree.Descriptors.ForReader, Stopped: stream.ErrShutdown,
		Tokens: c.Tokens, Hosts: c.Hosts, Insecure: c.Insecure, Limits: c.Limits, Logger: c.Logger,
	})
	if err == nil {
		s.document, err = front.Describe(table, "jobdir",
			"Long-running operations whose state is a directory. HEAD answers as GET would without starting anything.",
			c.Version)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect makes the resources.
func (s *Server) connect(c *Config) {
	d := &c.Daemon
	view := &viewer{tree: c.Tree, catalog: c.Catalog, history: c.History, daemon: d.Operations}
	wait := &awaiter{view: view, hub: s.hub, log: c.Logger}
	s.live = &liveTable{tree: c.Tree, catalog: c.Catalog, daemon: d.Live}
	s.lists = &lists{view: view, wait: wait, live: s.live, history: c.History}
	s.streams = &streams{tree: c.Tree, hub: s.hub, view: view, wait: wait, daemon: d.Operations, log: c.Logger}
	s.start = &starter{
		tree: c.Tree, catalog: c.Catalog, intake: c.Intake, view: view, wait: wait, streams: s.streams, pages: s.pages,
	}
	s.act = &actions{tree: c.Tree, view: view, live: s.live, pages: s.pages}
	s.retry = &retries{tree: c.Tree, catalog: c.Catalog, intake: c.Intake, view: view, start: s.start, act: s.act}
	s.retention = &retention{tree: c.Tree, view: view, live: s.live, daemon: d.Retention}
	s.bulks = &bulks{
		tree: c.Tree, live: s.live, history: c.History, act: s.act, retry: s.retry, retention: s.retention,
		failed: s.reportDiskFailure,
	}
	s.lanes = &laneControl{tree: c.Tree, live: s.live, daemon: d.Lanes}
	s.schedules = &scheduleList{tree: c.Tree, catalog: c.Catalog, daemon: d.Schedules}
	s.outbox = &outboxControl{
		tree: c.Tree, catalog: c.Catalog, view: view, live: s.live, daemon: d.Outbox, failed: s.reportDiskFailure,
	}
	s.events = &eventStreams{
		tree: c.Tree, events: c.Events, daemon: d.Operations, log: c.Logger, heartbeat: stream.Heartbeat, pong: stream.Heartbeat,
	}
	s.figures = &figures{
		lists: s.lists, live: s.live, daemon: d.Condition, counts: d.Counts, outbox: d.Outbox, version: c.Version,
	}
	s.health = &health{
		tree: c.Tree, catalog: c.Catalog, history: c.History, daemon: d.Condition, lanes: d.Lanes, outbox: d.Outbox,
		version: c.Version,
	}
}

// reportDiskFailure stops the daemon if err means that the disk fails.
func (s *Server) reportDiskFailure(err error) {
	if diskFailed(err) {
		s.daemon.DiskFailed(err)
	}
}

// fault is called with each error that is no fault of the client.
func (s *Server) fault(err error) {
	s.daemon.Health() // checks whether the daemon can go on
	s.reportDiskFailure(err)
}

// Close releases the watch of a server whose Serve was never called.
func (s *Server) Close() error { return s.hub.logs.Close() }

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
		watched <- s.hub.logs.Run(watchCtx)
	}()
	err := s.front.Serve(ctx, listeners...)
	endWatch()
	if failed := <-watched; failed != nil {
		err = errors.Join(fmt.Errorf("follow operations: %w", failed), err)
	}
	return err
}
