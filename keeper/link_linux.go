package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// errProtocol says that a keeper and this program have no version of the protocol in common.
var errProtocol = errors.New("this program and a living keeper have no protocol in common: use a program that is nearer to it, or wait for its commands to end")

// errReplaced says that a keeper does not listen to this daemon any more.
var errReplaced = errors.New("another daemon has come since, and the keeper listens to that one: nothing is started or ended from here any more")

// errBroken says that a connection ended before an answer came.
var errBroken = errors.New("the connection to the keeper ended")

// link is the connection to one keeper. When it breaks while the keeper lives it is made again, and requests that had no answer are
// sent again: all of them can be carried out twice without harm.
type link struct {
	pool     *Pool
	number   int
	build    string
	protocol int
	process  *held // the keeper

	mu      sync.Mutex
	change  sync.Cond // channel or gone changed
	channel *channel  // nil while there is no connection
	gone    bool      // the keeper is dead, or the pool is closed
	bye     bool      // the keeper has ended in order
	given   bool      // the keeper listens to another daemon
	last    uint64
	calls   map[uint64]*call
	remotes map[Key]*remote
	unsent  []request // what needs no answer and could not be sent
}

// silence is how long a keeper may take for an answer before somebody is told.
const silence = 5 * time.Second

// call is a request that waits for its answer.
type call struct {
	done   chan struct{}
	since  time.Time
	remote *remote // what the start has given
	answer message
	err    error
}

// dial connects and asks the keeper who it is.
func (l *link) dial(ctx context.Context) (_ *channel, _ *welcome, err error) {
	c, pid, err := dialAt(ctx, filepath.Join(l.pool.Dir, socketName(l.number)))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to keeper %d: %w", l.number, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if l.process == nil {
		if l.process, err = hold(pid); err != nil {
			return nil, nil, fmt.Errorf("hold keeper %d (PID %d): %w", l.number, pid, err)
		}
	}
	greeting := request{Number: 1, Verb: verbHello, Hello: &hello{Oldest: oldestProtocol, Newest: l.pool.newest, Build: l.pool.Build, Instance: l.pool.instance}}
	if err := c.send(greeting, nil); err != nil {
		return nil, nil, fmt.Errorf("greet keeper %d: %w", l.number, err)
	}
	var early []*Report
	for {
		var m message
		if err := c.receive(&m); err != nil {
			return nil, nil, fmt.Errorf("greet keeper %d: %w", l.number, err)
		}
		switch {
		case m.Number == 0 && m.Exit != nil:
			early = append(early, m.Exit) // it may have come between the making of the list and its sending
		case m.Number == 0:
		case m.Refusal == refusedReplaced:
			return nil, nil, fmt.Errorf("greet keeper %d: %w", l.number, errReplaced)
		case m.Refusal != "":
			return nil, nil, fmt.Errorf("greet keeper %d: %w: %s", l.number, errProtocol, m.Error)
		case m.Welcome == nil:
			return nil, nil, fmt.Errorf("greet keeper %d: %w", l.number, errFrame)
		default:
			for _, exit := range early {
				m.Welcome.ended(exit)
			}
			return c, m.Welcome, nil
		}
	}
}

// welcomed takes over what a keeper has in its hands.
func (l *link) welcomed(c *channel, w *welcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.build, l.protocol = w.Build, w.Protocol
	there := make(map[Key]bool, len(w.Commands))
	for i := range w.Commands {
		command := &w.Commands[i]
		there[command.Key] = true
		r := l.remotes[command.Key]
		if r == nil {
			r = newRemote(l, command)
			l.remotes[command.Key] = r
		}
		if command.Exit != nil {
			r.finish(command.Exit.Exit())
		} else if r.cause != "" {
			l.unsent = append(l.unsent, request{Verb: verbEnd, Key: &r.key, Cause: r.cause})
		}
	}
	for key, r := range l.remotes {
		if !there[key] {
			r.finish(Exit{Code: -1, At: time.Now(), Err: errors.New("the keeper does not know the command any more")})
		}
	}
	unsent := l.unsent
	l.unsent = nil
	l.channel = c
	for i := range unsent {
		if err := c.send(unsent[i], nil); err != nil {
			l.unsent = append(l.unsent, unsent[i:]...)
			break
		}
	}
	l.change.Broadcast()
}

// follow receives what the keeper says until it is dead or the pool is closed.
func (l *link) follow(c *channel) {
	for {
		err := l.listen(c)
		at, clockErr := now()
		c.close()
		l.broken()
		if c = l.again(errors.Join(err, clockErr)); c == nil {
			l.over(at)
			return
		}
	}
}

// listen returns when the connection is of no use any more.
func (l *link) listen(c *channel) error {
	for {
		var m message
		if err := c.receive(&m); err != nil {
			return err
		}
		l.mu.Lock()
		if m.Number == 0 {
			l.event(&m)
		} else {
			l.answered(&m)
		}
		l.mu.Unlock()
	}
}

func (l *link) event(m *message) {
	if m.Bye {
		l.bye = true
	}
	if m.Exit == nil {
		return // the last word, or something of a newer keeper
	}
	if r := l.remotes[m.Exit.Key]; r != nil {
		r.finish(m.Exit.Exit())
	}
}

func (l *link) answered(m *message) {
	c := l.calls[m.Number]
	if c == nil {
		return
	}
	delete(l.calls, m.Number)
	c.answer = *m
	if m.Command != nil {
		// Before the next message, which may say that it has ended.
		if c.remote = l.remotes[m.Command.Key]; c.remote == nil {
			c.remote = newRemote(l, m.Command)
			l.remotes[m.Command.Key] = c.remote
		}
		if m.Command.Exit != nil {
			c.remote.finish(m.Command.Exit.Exit())
		}
	}
	close(c.done)
}

// broken has everybody who waits for an answer ask again.
func (l *link) broken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.channel = nil
	for number, c := range l.calls {
		delete(l.calls, number)
		c.err = errBroken
		close(c.done)
	}
}

// again connects again. It returns nil when the keeper has died, which is seen a moment after its connections end, and when the pool
// is closed.
func (l *link) again(reason error) *channel {
	ctx := l.pool.ctx
	t := &target{held: l.process}
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		if t.awaitExit(ctx, time.Now().Add(wait)) == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(reason, io.EOF) || errors.Is(reason, net.ErrClosed) || errors.Is(reason, os.ErrNotExist) {
			l.pool.Logger.Debug("the connection to a living keeper ended", "keeper", l.number)
		} else {
			l.pool.Logger.Warn("the connection to a living keeper broke", "keeper", l.number, "error", reason)
		}
		dialing, cancel := context.WithTimeout(ctx, answerPatience)
		c, w, err := l.dial(dialing)
		cancel()
		if err == nil {
			l.welcomed(c, w)
			return c
		}
		if errors.Is(err, errReplaced) {
			l.pool.Logger.Error("a keeper is lost to this daemon", "keeper", l.number, "error", err)
			l.replaced()
			return nil
		}
		reason = err
	}
	return nil
}

// replaced ends the link although its keeper lives: its commands are in the hands of another daemon.
func (l *link) replaced() {
	l.mu.Lock()
	l.given = true
	l.mu.Unlock()
	l.pool.replaced.Store(true)
}

// disconnect ends the connection for good.
func (l *link) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.change.Broadcast()
	if l.channel != nil {
		_ = l.channel.Close() // its reader sees that
	}
}

func (l *link) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// request sends a request and waits for the answer. The error is ErrKeeperDied when none can come any more.
func (l *link) request(r request, c *call, file *os.File) error {
	c.since = time.Now()
	late := time.AfterFunc(silence, func() {
		l.pool.Logger.Warn("a keeper does not answer: continue it (kill -CONT) or kill it", "keeper", l.number, "pid", l.process.pid)
	})
	defer late.Stop()
	var failed *channel
	for {
		l.mu.Lock()
		for (l.channel == nil || l.channel == failed) && !l.gone {
			l.change.Wait()
		}
		if l.given {
			l.mu.Unlock()
			return errReplaced
		}
		if l.gone && l.bye {
			l.mu.Unlock()
			return errRetiring // nothing was begun
		}
		if l.gone {
			l.mu.Unlock()
			return ErrKeeperDied
		}
		l.last++
		r.Number, c.done, c.err = l.last, make(chan struct{}), nil
		l.calls[r.Number] = c
		to := l.channel
		l.mu.Unlock()
		if err := to.send(r, file); err != nil {
			l.mu.Lock()
			delete(l.calls, r.Number)
			l.mu.Unlock()
			if errors.Is(err, errTooLarge) {
				return err
			}
			failed = to
			to.hangUp() // half of it may have gone; its reader reads the last word of a keeper that ends, sees this and connects again
			continue
		}
		if <-c.done; c.err == nil {
			return refused(&c.answer)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// post sends a request that needs no answer.
func (l *link) post(r request) {
	for {
		l.mu.Lock()
		to := l.channel
		if to == nil {
			l.unsent = append(l.unsent, r)
		}
		l.mu.Unlock()
		if to == nil || to.send(r, nil) == nil {
			return
		}
		to.hangUp() // its reader sees that
		l.mu.Lock()
		if l.channel == to {
			l.channel = nil
		}
		l.mu.Unlock()
	}
}

func refused(m *message) error {
	switch m.Refusal {
	case "":
		return nil
	case refusedEnded:
		return fmt.Errorf("%w: %s", ErrEnded, m.Error)
	case refusedRetiring:
		return errRetiring
	case refusedReplaced:
		return errReplaced
	case refusedScarce:
		return fmt.Errorf("%w in the keeper: %s", syscall.EMFILE, m.Error)
	case refusedUnknown:
		return fmt.Errorf("%w: %s", errors.ErrUnsupported, m.Error)
	case refusedFailed:
	}
	return errors.New(m.Error)
}

// start starts a command there.
func (l *link) start(c *Command) (r *remote, adopted bool, err error) {
	dir, err := filepath.Abs(c.Dir) // the keeper stands elsewhere
	if err != nil {
		return nil, false, fmt.Errorf("start %q: working directory: %w", c.Args[0], err)
	}
	waiting := &call{}
	err = l.request(request{Verb: verbStart, Key: &c.Key, Start: &order{
		Args: pack(c.Args), Dir: []byte(dir), Env: pack(c.environment()), Mark: pack(c.Mark),
		Grace: c.Grace, Timeout: c.Timeout, ScanOnExit: c.ScanOnExit, Report: c.Report, Label: []byte(c.Label),
	}}, waiting, c.Output)
	if err != nil {
		return nil, false, err
	}
	if waiting.remote == nil {
		return nil, false, fmt.Errorf("start %q: %w", c.Args[0], errFrame)
	}
	return waiting.remote, waiting.answer.Command.Adopted, nil
}

func (l *link) remote(key Key) *remote {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remotes[key]
}
