package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answerPatience is how long a keeper may take to say who it is.
const answerPatience = 10 * time.Second

// Pool is the keepers of a storage directory, as the one daemon of it uses them. It starts commands through a keeper of its own
// build, which is started with the first one, and holds on to those of others until their last command has ended.
type Pool struct {
	PoolOptions
	instance string          // tells this pool from those of other daemons
	ctx      context.Context //nolint:containedctx // what the goroutines of the pool live by, from Open to Close
	stop     context.CancelFunc
	group    sync.WaitGroup

	replaced atomic.Bool // another daemon has come
	starting sync.Mutex  // held while a keeper is started
	mu       sync.Mutex  // guards what follows
	links    map[*link]struct{}
	current  *link // gets the new commands
}

// Open connects to every living keeper of the storage and clears away what dead ones left. It fails when one lives and does not
// answer: its commands must not be taken for lost. No keeper is started before the first command. The caller closes the pool.
func Open(ctx context.Context, options PoolOptions) (*Pool, error) {
	if len(options.Program) == 0 {
		return nil, errors.New("open the keepers: no program is given")
	}
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the keepers: %w", err)
	}
	p := &Pool{PoolOptions: options, instance: rand.Text(), links: map[*link]struct{}{}}
	p.Dir = dir
	p.Executable = cmp.Or(p.Executable, p.Program[0])
	p.newest = cmp.Or(p.newest, newestProtocol)
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
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
	return p, nil
}

// Close disconnects. Commands go on, and so do their keepers.
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
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// find connects to keeper n, or clears away what is left of it.
func (p *Pool) find(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
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
			p.Logger.Info("keeper found", "keeper", n, "pid", l.process.pid, "commands", len(l.remotes), "same_build", l.build == p.Build)
			return nil
		}
		if errors.Is(err, errFrame) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errProtocol) {
			return err
		}
		// It is about to listen, or about to end. Neither makes an event that could be waited for.
		pause(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("keeper %d lives and does not answer; continue it (kill -CONT) or kill it, its PID is in %s: %w",
				n, filepath.Join(p.Dir, lockName(n)), err)
		}
	}
}

// report tells what a dead keeper had to say.
func (p *Pool) report(n int, said string) {
	if said != "" {
		p.Logger.Error("a keeper has died", "keeper", n, "said", said)
	}
}

// connect makes a link to keeper n and follows it. A keeper that this pool has started gets its commands, whatever it calls itself, and
// so does one of the same build.
func (p *Pool) connect(ctx context.Context, n int, own bool) (*link, error) {
	l := &link{pool: p, number: n, calls: map[uint64]*call{}, remotes: map[Key]*remote{}}
	l.change.L = &l.mu
	c, w, err := l.dial(ctx)
	if err != nil {
		if l.process != nil {
			l.process.close()
		}
		return nil, err
	}
	l.welcomed(c, w)
	own = own || l.build == p.Build
	p.mu.Lock()
	p.links[l] = struct{}{}
	if own && !w.Retiring && (p.current == nil || p.current.isGone()) {
		p.current = l
	}
	p.mu.Unlock()
	if !own {
		l.post(request{Verb: verbRetire})
	}
	p.group.Go(func() { l.follow(c) }) //nolint:contextcheck // it lives with the pool, not with this call
	return l, nil
}

// Held lists what living keepers hold, also what has ended and was not taken.
func (p *Pool) Held() []Held {
	var held []Held
	for _, l := range p.all() {
		l.mu.Lock()
		for key, r := range l.remotes {
			held = append(held, Held{Key: key, PID: r.pid, Label: r.label, Ended: r.isDone()})
		}
		l.mu.Unlock()
	}
	return held
}

// Silent lists the keepers that live and have not answered for some time.
func (p *Pool) Silent() (silent []Silence) {
	for _, l := range p.all() {
		var since time.Time
		l.mu.Lock()
		for _, c := range l.calls {
			if since.IsZero() || c.since.Before(since) {
				since = c.since
			}
		}
		gone := l.gone
		l.mu.Unlock()
		if !gone && !since.IsZero() && time.Since(since) > silence {
			silent = append(silent, Silence{Keeper: l.number, PID: l.process.pid, Since: since})
		}
	}
	return silent
}

// PIDs are the process numbers of the living keepers. All that their commands have started descends from them.
func (p *Pool) PIDs() []int {
	var pids []int
	for _, l := range p.all() {
		if !l.isGone() {
			pids = append(pids, l.process.pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Start starts a command through a keeper, unless a command with its key is there already: then it returns that one, also when it
// has ended and its end was not taken, or is known only from its exit report.
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
			return nil, fmt.Errorf("start %q: %w", c.Args[0], err)
		}
		r, adopted, err := l.start(&c)
		switch {
		case err == nil:
			return &handle{r, adopted}, nil
		case errors.Is(err, errRetiring):
			p.mu.Lock()
			if p.current == l {
				p.current = nil
			}
			p.mu.Unlock()
		case errors.Is(err, ErrKeeperDied) && len(c.Mark) > 0:
			// Nobody knows whether it was started, and the kernel has killed its leader if so.
			_, endErr := EndMarked(context.WithoutCancel(ctx), c.Mark, c.Grace, p.PIDs()...)
			return nil, errors.Join(err, endErr)
		default:
			return nil, err
		}
	}
}

// Find returns the command with this key that Start would find, and starts none. report is that of Command.
func (p *Pool) Find(key Key, report string) (Running, bool) {
	if r := p.running(key); r != nil {
		return &handle{r, true}, true
	}
	if r := p.reported(key, report); r != nil {
		return &handle{r, true}, true
	}
	return nil, false
}

// Prepare starts the keeper that new commands need, if there is none. Start does so too; whoever calls this before knows of a disk that is
// full, or of a limit that is reached, while nothing has begun.
func (p *Pool) Prepare(ctx context.Context) error {
	_, err := p.keeper(ctx)
	return err
}

// Retire has every keeper end with its last command, without waiting for another daemon.
func (p *Pool) Retire() {
	for _, l := range p.all() {
		l.post(request{Verb: verbRetire})
	}
}

func (p *Pool) running(key Key) *remote {
	for _, l := range p.all() {
		if r := l.remote(key); r != nil {
			return r
		}
	}
	return nil
}

// reported returns a command whose keeper has ended since, and has left a report.
func (p *Pool) reported(key Key, name string) *remote {
	if name == "" {
		return nil
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
	r := &remote{key: key, dir: p.Dir, report: name, label: string(report.Label), done: make(chan struct{})}
	r.finish(report.Exit())
	return r
}

// keeper returns the keeper for new commands, which is started if there is none.
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
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
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
