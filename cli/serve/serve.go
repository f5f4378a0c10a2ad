// Package serve makes a daemon of its parts, and runs it.
//
//	Process   the command "jobdir serve": settings, log, signals, service manager       process.go signals.go notify.go
//	   │
//	  Run     cli.Serve, also of an embedding program                                   serve.go
//	   ├─ statefs.Owner   the lock on the storage directory
//	   ├─ catalog         definitions; job folders are watched and read again           reload.go
//	   ├─ listeners       the TCP addresses, and storage/jobdir.sock                    listen.go
//	   ├─ history, events index of ended operations, log of events
//	   ├─ keeper          processes of commands, which outlive the daemon
//	   ├─ daemon          decides and runs
//	   └─ control         HTTP; it asks the parts of the daemon
//
// The parts are made in this order and closed in the opposite one. They run side by side until the context or one of
// them ends; then Run stops the daemon first, the HTTP server second, and returns the cause.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/control"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// Config configures a daemon. Storage is required; all other fields have defaults.
type Config struct {
	// Storage is the storage directory. It is created if it is missing.
	Storage string
	// Listen are TCP addresses (HOST:PORT, port 0 for any) and further sockets (unix:/PATH). The unix socket
	// in the storage always exists.
	Listen []string
	// Jobs are folders of job definitions, searched recursively and reloaded on changes.
	Jobs []string
	// Definitions are job definitions that the program contains.
	Definitions []catalog.Source
	// Handlers are the Go functions that definitions name.
	Handlers work.Handlers

	// Durability is what an accepted operation survives; default statefs.Power.
	Durability statefs.Durability
	// Commit says how changes of operations become durable.
	Commit statefs.CommitOptions
	// GroupControl lets the group of the storage submit and control operations through files and the socket.
	GroupControl bool
	// Keeper is the command line that runs the command "keeper" of this program for the storage. Commands
	// then outlive the daemon as children of the keeper. Without a keeper they are children of this process
	// and are interrupted with it.
	Keeper []string
	// Tokens are the accepted tokens. If there are any, every request over TCP needs one.
	Tokens []front.Token

	// The groups of the settings.
	Access config.Access
	Work   config.Work
	Upkeep config.Upkeep
	Queue  config.Queue
	Outbox config.Outbox

	// Version is shown to clients; default the version of the program.
	Version string
	// Logger gets the daemon's own log; nil discards it.
	Logger *slog.Logger
	// Serving is called once, when the daemon accepts and runs operations; nil: not called.
	Serving func(Serving)
	// Reload makes the daemon reload its definitions when a signal arrives, in addition to changes that it
	// notices itself; may be nil.
	Reload <-chan os.Signal
	// Drain makes the daemon start no more work when a value arrives, and Run return when nothing runs; may
	// be nil.
	Drain <-chan struct{}
}

// Serving is where a daemon can be reached.
type Serving struct {
	// Addresses are URLs of TCP addresses, with the real port, and unix:/PATH of the configured sockets.
	Addresses []string
	// Socket is the path of the unix socket in the storage.
	Socket string
	// Storage is the absolute path of the storage.
	Storage string
	// Jobs is the number of valid jobs.
	Jobs int
	// Exposed reports that other machines can reach one of the addresses.
	Exposed bool
	// Hosts are the host names that URLs may use, besides localhost and the daemon's own addresses.
	Hosts []string
}

// Run runs a daemon until ctx ends, and then stops it in order: it refuses new operations, interrupts work
// and puts it back into the queue, ends open streams and releases the lock. If the cause of ctx is
// daemon.ErrDetach, commands of a keeper continue to run instead. Run returns nil after such a stop, and
// otherwise the reason why the daemon could not start or continue; a *statefs.LockedError if another daemon
// holds the storage.
//
// version is that of the program: clients see it unless the configuration has another, and keepers know by it whether
// they are of the same build.
func Run(ctx context.Context, config Config, version string) (err error) {
	s := &service{config: config, version: version, log: cmp.Or(config.Logger, slog.New(slog.DiscardHandler))}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// service is a daemon with all its parts.
type service struct {
	config    Config
	version   string
	log       *slog.Logger
	tree      *statefs.Tree
	owner     *statefs.Owner
	history   *history.Store
	events    *events.Log
	catalog   *catalog.Catalog
	reloader  *reloader
	daemon    *daemon.Daemon
	server    *control.Server
	listeners []net.Listener
	closers   []func() error
}

// open makes the parts. Sockets come after the lock, because only its holder may replace a stale one.
func (s *service) open(ctx context.Context) (err error) {
	c := &s.config
	if err := checkExposure(c.Listen, len(c.Tokens) > 0 || c.Access.Insecure); err != nil {
		return err
	}
	webhooks, err := outbox.ParseAllow(c.Outbox.WebhookAllow...)
	if err != nil {
		return exit.Usagef("webhook_allow: %w", err)
	}
	options := statefs.Options{
		Durability: c.Durability, GroupControl: c.GroupControl, Commit: c.Commit,
		Cleared: func(name, reason string) {
			s.log.Warn("moved a file of the wrong type to corrupt/", "file", name, "reason", reason)
		},
	}
	if s.tree, err = statefs.Open(c.Storage, options); err != nil {
		return err
	}
	s.closers = append(s.closers, s.tree.Close)
	if s.owner, err = statefs.Own(s.tree); err != nil {
		return err
	}
	s.closers = append(s.closers, s.owner.Release)
	s.catalog = catalog.New(catalog.Options{
		Dirs: c.Jobs, Extra: c.Definitions, Logger: s.log,
		Handlers: func() []string { return slices.Collect(maps.Keys(c.Handlers)) },
		Targets:  outbox.NewShared(c.Storage, webhooks, 0),
	})
	if s.reloader, err = newReloader(s.catalog, c.Jobs, s.log); err != nil {
		return err
	}
	s.closers = append(s.closers, s.reloader.close)
	if err := s.listen(ctx); err != nil {
		return err
	}
	if s.history, err = history.Open(s.owner, s.log); err != nil {
		return err
	}
	s.history.SetDeletedIDRetention(c.Upkeep.IdempotencyAge)
	s.closers = append(s.closers, s.history.Close)
	if s.events, err = events.Open(s.owner, events.Options{Retention: c.Upkeep.Events, Logger: s.log}); err != nil {
		return err
	}
	s.closers = append(s.closers, s.events.Close)
	keepers, err := s.openKeepers(ctx)
	if err != nil {
		return err
	}
	intake := submit.NewIntake(submit.Config{
		Tree: s.tree, KeyAge: c.Upkeep.IdempotencyAge, Total: s.total,
		// s.daemon is set before the first request is served
		Admit: func(drafts []*statefs.Record) error { return s.daemon.Admit(drafts) },
	})
	s.daemon, err = daemon.New(daemon.Config{
		Keepers: keepers, Intake: intake,
		History: s.history, Retention: c.Upkeep.Retention, Events: s.events,
		Lanes: c.Queue.Lanes, Limits: c.Queue.Limits, Ageing: c.Queue.Ageing, MaxQueued: c.Queue.MaxQueued,
		Outbox: delivery.Settings{WebhookAllow: webhooks, Workers: c.Outbox.Workers, PerTarget: c.Outbox.PerTarget},
		Owner:  s.owner, Catalog: s.catalog, Handlers: c.Handlers, Logger: s.log,
		CrashLimit: c.Work.CrashLimit, Grace: cmp.Or(c.Work.Grace, 10*time.Second), StallAfter: c.Work.StallAfter,
		SweepInterval: cmp.Or(c.Upkeep.SweepInterval, time.Minute),
	})
	if err != nil {
		return err
	}
	s.server, err = control.New(control.Config{ //nolint:contextcheck // handlers take the context of their request
		Tree: s.tree, Catalog: s.catalog, History: s.history, Events: s.events, Intake: intake,
		Daemon: control.Daemon{
			Condition: s.daemon, Operations: s.daemon, Live: s.daemon, Retention: s.daemon, Counts: s.daemon,
			Lanes: s.daemon.Lanes, Schedules: s.daemon.Trigger, Outbox: s.daemon.Deliveries,
		},
		Tokens: c.Tokens, Hosts: s.hosts(), Insecure: c.Access.Insecure, Version: cmp.Or(c.Version, s.version), Logger: s.log,
	})
	if err != nil {
		return errors.Join(err, s.daemon.Close())
	}
	return nil
}

// openKeepers finds the keepers of the storage; nil if the configuration has none.
func (s *service) openKeepers(ctx context.Context) (*keeper.Pool, error) {
	if len(s.config.Keeper) == 0 {
		return nil, nil
	}
	pool, err := keeper.Open(ctx, keeper.PoolOptions{
		Dir: s.tree.Dir(), Program: s.config.Keeper, Executable: "/proc/self/exe", Build: Build(s.version), Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, pool.Close)
	return pool, nil
}

func (s *service) close() error {
	var err error
	for _, closer := range slices.Backward(s.closers) {
		err = errors.Join(err, closer())
	}
	return err
}

// part is one of the goroutines of a service.
type part struct {
	name string
	stop context.CancelCauseFunc
	done chan struct{}
	err  error
}

func (p *part) halt(cause error) { p.stop(cause); <-p.done }

// failure returns why a part ended that was not stopped.
func (p *part) failure() error {
	if p.err == nil {
		return fmt.Errorf("%s ended without a reason", p.name)
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}

func (s *service) run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	start := func(name string, run func(context.Context) error) *part {
		// The parts are stopped one after another, not all at once with ctx.
		partCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
		p := &part{name: name, stop: stop, done: make(chan struct{})}
		wait.Go(func() {
			defer close(p.done)
			p.err = run(partCtx)
		})
		return p
	}
	reload := start("watch the job folders", func(ctx context.Context) error {
		return s.reloader.run(ctx, s.config.Reload)
	})
	work := start("daemon", s.daemon.Run)
	serve := start("HTTP server", func(ctx context.Context) error { return s.server.Serve(ctx, s.listeners...) })

	cause, err := s.watch(ctx, reload, work, serve)
	s.server.Drain()
	for _, p := range []*part{work, serve, reload} {
		if notify.IsClosed(p.done) { // err has its failure
			continue
		}
		p.halt(cause)
		if p.err != nil && !errors.Is(p.err, context.Canceled) {
			err = errors.Join(err, p.failure())
		}
	}
	return err
}

// watch waits until ctx or a part ends, and reports when the daemon serves. It returns the cause with which
// the other parts are stopped.
func (s *service) watch(ctx context.Context, reload, work, serve *part) (cause, failure error) {
	ready := s.daemon.Ready()
	var drained <-chan struct{}
	for {
		select {
		case <-ready:
			ready = nil
			if s.config.Serving != nil {
				s.config.Serving(s.serving())
			}
		case <-s.config.Drain:
			drained = s.daemon.Drain()
		case <-drained:
			return daemon.ErrDetach, nil
		case <-ctx.Done():
			return context.Cause(ctx), nil
		case <-reload.done:
			return daemon.ErrDetach, reload.failure()
		case <-work.done:
			return daemon.ErrDetach, work.failure()
		case <-serve.done:
			return daemon.ErrDetach, serve.failure()
		}
	}
}

func (s *service) serving() Serving {
	out := Serving{Socket: s.tree.SocketPath(), Storage: s.tree.Dir(), Jobs: len(s.catalog.All()), Hosts: s.hosts()}
	for _, l := range s.listeners {
		at, ok := l.Addr().(*net.TCPAddr)
		out.Exposed = out.Exposed || ok && !at.IP.IsLoopback()
		switch {
		case l.Addr().Network() != "unix":
			out.Addresses = append(out.Addresses, "http://"+reachable(l.Addr()))
		case socketPath(l) != out.Socket:
			out.Addresses = append(out.Addresses, "unix:"+socketPath(l))
		}
	}
	return out
}

// reachable returns an address at which a listener answers. For a wildcard address it is that of the
// loopback, which the check of the Host header always accepts.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("localhost", port)
}

// total returns the number of items of an operation if it is known before the start, else nil.
func (s *service) total(def *catalog.Definition, params catalog.Params) *int64 {
	if handler, ok := s.config.Handlers[def.Handler]; ok && handler.Total != nil {
		return handler.Total(params)
	}
	return def.Total(params)
}
