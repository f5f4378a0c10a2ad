package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// Jobs of the daemon of sections l and q: noop ends at once, gated ends when the run says so, and one of them runs at
// a time.
var loadJobFiles = map[string]string{
	"noop.yaml":  "group: bench\nunique: {on_hit: off}\nname: noop\nsummary: Ends at once\nhandler: noop\n",
	"gated.yaml": "group: bench\nunique: {on_hit: off}\nname: gated\nsummary: Ends when it may\nlane: one\nhandler: gated\n",
}

// startLoad starts this program as a daemon with those jobs.
func (b *bench) startLoad(ctx context.Context, storage, durability string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return b.startLoadOf(ctx, self, storage, durability, "")
}

// startLoadOf is startLoad for another build of this program, and for a way to commit; "" is the default.
func (b *bench) startLoadOf(ctx context.Context, program, storage, durability string, commit statefs.CommitMethod,
) (*server, error) {
	jobs, err := b.definitions(loadJobFiles)
	if err != nil {
		return nil, err
	}
	if storage == "" {
		if storage, err = b.folder("storage"); err != nil {
			return nil, err
		}
	}
	var said ownServer
	settings := ownServer{Storage: storage, Jobs: jobs, Durability: durability, Commit: commit}
	c, err := startRoleOf(ctx, program, "load", settings, &said)
	if err != nil {
		return nil, err
	}
	return &server{child: c, base: said.Base, storage: storage}, nil
}

func playLoad(ctx context.Context, argument []byte) error {
	var o ownServer
	if err := json.Unmarshal(argument, &o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// strace may attach, which is not an ancestor; a kernel without that rule does not know the call.
	_ = unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0)
	g := &gate{pass: make(chan struct{}), entered: make(chan time.Duration)}
	go answerBytes(stop, map[byte]func(){'n': g.next})
	return cli.Serve(ctx, cli.ServeConfig{
		Storage: o.Storage, Jobs: []string{o.Jobs}, Listen: []string{"127.0.0.1:0"},
		Durability: statefs.Durability(o.Durability), Commit: statefs.CommitOptions{Method: o.Commit},
		Work: config.Work{Grace: 2 * time.Second}, Logger: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn})),
		Queue: config.Queue{Lanes: map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}},
		Handlers: work.Handlers{
			"noop":  {Run: func(context.Context, *work.Op) error { return nil }},
			"gated": {Run: g.hold},
		},
		Serving: func(s cli.Serving) {
			say(ownServer{Base: s.Addresses[0]})
		},
	})
}

// gate is where gated operations wait, one at a time, because their lane has one place.
type gate struct {
	pass    chan struct{}      // lets one end
	entered chan time.Duration // the next one has begun, so long after the one before it had returned

	mu   sync.Mutex // guards left
	left time.Time
}

func (g *gate) hold(ctx context.Context, _ *work.Op) error {
	g.mu.Lock()
	gap, first := time.Since(g.left), g.left.IsZero()
	g.mu.Unlock()
	if !first {
		select {
		case g.entered <- gap:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-g.pass:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = time.Now()
	return nil
}

// next lets the operation that holds the lane end, and says how long it took until the next one began.
func (g *gate) next() {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case g.pass <- struct{}{}:
	case <-late.C:
		return // the run hears nothing, and says so
	}
	select {
	case gap := <-g.entered:
		say(gap)
	case <-late.C:
	}
}

// nextGap has the lane of one place go on by one operation.
func (s *server) nextGap() (gap time.Duration, err error) {
	if _, err := s.in.Write([]byte{'n'}); err != nil {
		return 0, fmt.Errorf("have the next operation begin: %w", err)
	}
	return gap, s.answer(&gap)
}
