package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// answerTimeout is how long a new keeper may take to announce itself, and again to answer the first
// connection.
const answerTimeout = 10 * time.Second

// Pool is a daemon's view of the keepers of its storage directory; a storage has one daemon. It
// starts commands through a keeper of its own build, which it starts together with the first
// command. It stays connected to keepers of other builds until their last command has ended.
type Pool struct {
	PoolOptions
	instance string          // distinguishes this pool from those of other daemons
	ctx      context.Context //nolint:containedctx // the context of the pool's goroutines, from Open to Close
	stop     context.CancelFunc
	group    sync.WaitGroup

	replaced   atomic.Bool // another daemon has taken over a keeper
	starting   sync.Mutex  // held while a keeper is started
	mu         sync.Mutex  // guards what follows
	links      map[*link]struct{}
	current    *link         // gets the new commands
	unanswered int           // keepers that Open found and that have neither answered nor died
	settled    chan struct{} // closed when there are none
}

// Open connects to every living keeper of the storage and cleans up after dead ones. A keeper that
// lives and does not answer is waited for in the background, until Settled: its commands must not
// be treated as lost before. No keeper is started before the first command. The caller closes the
// pool.
func Open(ctx context.Context, options PoolOptions) (*Pool, error) {
	if len(options.Program) == 0 {
		return nil, errors.New("open the keepers: no program is given")
	}
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the keepers: %w", err)
	}
	p := &Pool{
		PoolOptions: options, instance: rand.Text(), links: map[*link]struct{}{},
		settled: make(chan struct{}), unanswered: 1,
	}
	p.Dir = dir
	p.Executable = cmp.Or(p.Executable, p.Program[0])
	p.SilenceTimeout = cmp.Or(p.SilenceTimeout, silenceTimeout)
	p.Logger = cmp.Or(p.Logger, slog.New(slog.DiscardHandler))
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	found, err := numbers(dir)
	if err != nil {
		p.stop()
		return nil, err
	}
	for _, n := range found {
		if err := p.find(ctx, n); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	p.keeperSettled()
	return p, nil
}

// Settled returns a channel that is closed when every keeper found by Open has answered or died.
// From then on Commands and Find know all commands.
func (p *Pool) Settled() <-chan struct{} { return p.settled }

// keeperSettled counts one keeper that has answered or died. Open calls it once more, when it has
// found all keepers.
func (p *Pool) keeperSettled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unanswered--; p.unanswered == 0 {
		close(p.settled)
	}
}

// Close disconnects from all keepers. Their commands go on, and so do the keepers.
func (p *Pool) Close() error {
	p.stop()
	for _, l := range p.all() {
		l.disconnect()
	}
	p.group.Wait()
	return nil
}

func (p *Pool) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.links))
}

// find connects to keeper n, or cleans up after it if it is dead. It waits for the answer of a
// running keeper, for SilenceTimeout, and does not wait for a stopped keeper.
func (p *Pool) find(parent context.Context, n int) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(parent, p.SilenceTimeout)
	defer cancel()
	p.group.Go(func() {
		for pause(ctx, stopCheckInterval); ctx.Err() == nil; pause(ctx, stopCheckInterval) {
			if isStopped(p.Dir, n) {
				cancel()
			}
		}
	})
	for {
		said, alive, err := clearNumber(p.Dir, n)
		if err != nil {
			return err
		}
		if !alive {
			p.report(n, said)
			return nil
		}
		l, err := p.connect(ctx, n, false)
		if err == nil {
			p.Logger.Info("keeper found", "keeper", n, "pid", l.process.pid, "commands", len(l.remotes),
				"same_build", l.build == p.Build)
			return nil
		}
		if errors.Is(err, errFrame) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errProtocol) {
			return err
		}
		// It is about to listen, or about to end. No event reports either.
		pause(ctx, 10*time.Millisecond)
		if parent.Err() != nil {
			return fmt.Errorf("keeper %d lives and does not answer; continue it (kill -CONT) or kill it, its PID is in %s: %w",
				n, filepath.Join(p.Dir, lockName(n)), err)
		}
		if ctx.Err() != nil {
			p.awaitSilent(n, began) //nolint:contextcheck // it lives with the pool, not with this call
			return nil
		}
	}
}

// awaitSilent waits in the background for a keeper that lives and does not answer.
func (p *Pool) awaitSilent(n int, since time.Time) {
	l := newLink(p, n)
	l.silent = true
	if c, pid, err := dialAt(p.ctx, filepath.Join(p.Dir, socketName(n))); err == nil {
		// A keeper that does not listen has no commands.
		c.close()
		l.process, _ = openPidfd(pid) // otherwise it has died since
	}
	first := &call{since: since}
	l.waiting[first] = struct{}{}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.unanswered++
	p.mu.Unlock()
	l.reportSilence()
	p.group.Go(func() {
		c := l.first()
		l.mu.Lock()
		delete(l.waiting, first)
		l.silent = false
		l.mu.Unlock()
		if c == nil {
			l.finish(0) // it has no commands
			p.keeperSettled()
			return
		}
		p.keeperSettled()
		l.follow(c)
	})
}

// first connects to a keeper as soon as it answers. It returns nil when the keeper has died, and
// when the pool is closed.
func (l *link) first() *channel {
	p := l.pool
	for said := ""; p.ctx.Err() == nil; pause(p.ctx, reportRetryInterval) {
		c, w, err := l.dial(p.ctx) // without a time limit: its connections end when it dies
		if err == nil {
			p.Logger.Info("keeper found", "keeper", l.number, "pid", l.pid(), "commands", len(w.Commands),
				"same_build", w.Build == p.Build)
			if !l.join(c, w, false) {
				l.post(request{Verb: verbRetire}) // another keeper gets the new commands
			}
			return c
		}
		words, alive, clearErr := clearNumber(p.Dir, l.number)
		if !alive && clearErr == nil {
			p.report(l.number, words)
			return nil
		}
		if text := errors.Join(err, clearErr).Error(); text != said && p.ctx.Err() == nil {
			p.Logger.Warn("no connection to a living keeper; retrying every second", "keeper", l.number, "error", text)
			said = text
		}
	}
	return nil
}

// report logs the last output of a dead keeper.
func (p *Pool) report(n int, said string) {
	if said != "" {
		p.Logger.Error("a keeper has died", "keeper", n, "said", said)
	}
}

// connect makes a link to keeper n and follows it. New commands go to a keeper that this pool has
// started, whatever build it reports, or to one of the same build.
func (p *Pool) connect(ctx context.Context, n int, own bool) (*link, error) {
	l := newLink(p, n)
	c, w, err := l.dial(ctx)
	if err != nil {
		if l.process != nil {
			l.process.close()
		}
		return nil, err
	}
	if !l.join(c, w, own) && !own && l.build != p.Build {
		l.post(request{Verb: verbRetire})
	}
	p.group.Go(func() { l.follow(c) }) //nolint:contextcheck // it lives with the pool, not with this call
	return l, nil
}

func newLink(p *Pool, n int) *link {
	l := &link{pool: p, number: n, calls: map[uint64]*call{}, waiting: map[*call]struct{}{}, remotes: map[Key]*remote{}}
	l.change.L = &l.mu
	return l
}

// join takes over a keeper's commands, and reports whether the keeper gets the new ones.
func (l *link) join(c *channel, w *welcome, own bool) (current bool) {
	p := l.pool
	l.welcomed(c, w)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = struct{}{}
	if (own || w.Build == p.Build) && !w.Retiring && (p.current == nil || p.current.isGone()) {
		p.current = l
	}
	return p.current == l
}

// Commands lists the commands of living keepers, including commands that have ended without an
// acknowledgement.
func (p *Pool) Commands() []HeldCommand {
	var held []HeldCommand
	for _, l := range p.all() {
		l.mu.Lock()
		for key, r := range l.remotes {
			held = append(held, HeldCommand{Key: key, PID: r.command.PID, Label: string(r.Label), Ended: r.isDone()})
		}
		l.mu.Unlock()
	}
	return held
}

// Silent lists the living keepers that have not answered a request within SilenceTimeout, and the
// keepers that were stopped when Open found them and have not answered since.
func (p *Pool) Silent() (list []SilentKeeper) {
	for _, l := range p.all() {
		l.mu.Lock()
		since, silent, gone := l.silentSinceLocked(), l.silent, l.gone
		l.mu.Unlock()
		if !gone && !since.IsZero() && (silent || time.Since(since) >= p.SilenceTimeout) {
			list = append(list, SilentKeeper{Keeper: l.number, PID: l.pid(), Since: since})
		}
	}
	return list
}

// PIDs returns the PIDs of the living keepers. Every process of their commands descends from one of
// them.
func (p *Pool) PIDs() []int {
	var pids []int
	for _, l := range p.all() {
		if pid := l.pid(); pid != 0 && !l.isGone() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Start starts a command through a keeper. If a command with its key exists, Start returns that
// one, including a command that has ended and was not acknowledged, or whose end is known only from
// its exit report.
func (p *Pool) Start(ctx context.Context, c Command) (Running, error) {
	if r, ok := p.Find(c.Key, c.Report); ok {
		return r, nil
	}
	if c.Key.Operation == "" || c.Key.Run < 1 {
		return nil, fmt.Errorf("start: %q run %d is no key for a keeper", c.Key.Operation, c.Key.Run)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	for {
		l, err := p.keeper(ctx)
		if err != nil {
			return nil, fmt.Errorf("start %q: %w: %w", c.Args[0], ErrNoKeeper, err)
		}
		r, err := l.start(ctx, &c)
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, errRetiring):
			p.mu.Lock()
			if p.current == l {
				p.current = nil
			}
			p.mu.Unlock()
		case errors.Is(err, ErrKeeperDied) && len(c.Mark) > 0:
			// The start may have been carried out. If it was, the kernel has killed the leader with
			// the keeper.
			_, endErr := EndMarked(context.WithoutCancel(ctx), c.Mark, c.Grace, p.PIDs()...)
			return nil, errors.Join(err, endErr)
		case errors.Is(err, errReplaced):
			return nil, fmt.Errorf("start %q: %w: %w", c.Args[0], ErrNoKeeper, err)
		default:
			return nil, err
		}
	}
}

// Find returns the command that Start would find under this key; it starts none. report is
// Command.Report.
func (p *Pool) Find(key Key, report string) (Running, bool) {
	for _, l := range p.all() {
		l.mu.Lock()
		r := l.remotes[key]
		l.mu.Unlock()
		if r != nil {
			return r, true
		}
	}
	if r := p.reported(key, report); r != nil {
		return r, true
	}
	return nil, false
}

// Prepare starts the keeper for new commands if there is none, as Start does. A caller that uses it
// first learns of a full disk or a reached limit before anything has begun.
func (p *Pool) Prepare(ctx context.Context) error {
	_, err := p.keeper(ctx)
	return err
}

// Retire makes every keeper exit with its last command, without waiting for another daemon.
func (p *Pool) Retire() {
	for _, l := range p.all() {
		l.post(request{Verb: verbRetire})
	}
}

// reported returns a command whose keeper has exited and left an exit report.
func (p *Pool) reported(key Key, name string) *remote {
	if name == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(p.Dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil // the usual case, at an eighth of the system calls
	}
	report, err := ReadReport(p.Dir, name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.Logger.Warn("exit report ignored", "report", name, "error", err)
		}
		return nil
	}
	if report.Key != key {
		p.Logger.Info("exit report of another run ignored", "report", name, "run", report.Run, "wanted", key.Run)
		return nil
	}
	r := &remote{
		command: command{Key: key, Report: name, Label: report.Label}, dir: p.Dir, done: make(chan struct{}),
	}
	r.finish(report.exit())
	return r
}

// keeper returns the keeper for new commands, and starts one if there is none.
func (p *Pool) keeper(ctx context.Context) (*link, error) {
	if l := p.ready(); l != nil {
		return l, nil
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if l := p.ready(); l != nil {
		return l, nil
	}
	if p.ctx.Err() != nil {
		return nil, errors.New("start a keeper: the daemon ends")
	}
	if p.replaced.Load() {
		return nil, errReplaced
	}
	n, err := p.spawn(ctx)
	if err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	l, err := p.connect(ctx, n, true)
	if err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	p.Logger.Info("keeper started", "keeper", n, "pid", l.process.pid)
	return l, nil
}

func (p *Pool) ready() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || p.current.isGone() {
		return nil
	}
	return p.current
}

// spawn starts a keeper process and returns its number. The keeper gets a session of its own:
// neither Ctrl-C nor the hang-up of a terminal reaches it, and it outlives this process.
func (p *Pool) spawn(ctx context.Context) (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, errors.Join(err, write.Close())
	}
	defer null.Close()
	closeInherited()
	attr := &syscall.ProcAttr{Dir: "/", Env: keeperEnviron(), Files: []uintptr{null.Fd(), write.Fd(), write.Fd()}}
	child, err := children.fork(p.Executable, p.Program, attr, false)
	if err = errors.Join(err, write.Close()); err != nil {
		return 0, err
	}
	p.group.Go(func() { p.await(child) })
	return awaitAnnouncement(ctx, read)
}

// await reaps a keeper that ends while this process runs.
func (p *Pool) await(child *leader) {
	defer child.close()
	if child.awaitExit(p.ctx, time.Time{}) != nil {
		return // the pool is closed
	}
	_ = children.reap(child.pid, nil, nil) // it has exited
}

// awaitAnnouncement reads what a keeper prints until it serves or has ended.
func awaitAnnouncement(ctx context.Context, from *os.File) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = from.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(from, 64<<10))
	for line := range strings.Lines(string(text)) {
		var said announcement
		if json.Unmarshal([]byte(line), &said) == nil && said.Keeper > 0 {
			return said.Keeper, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("it did not begin to serve: %q", strings.TrimSpace(string(text))), err)
}
