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

// errProtocol means that a keeper and this program have no version of the protocol in common.
var errProtocol = errors.New("this program and a living keeper have no protocol in common: use a program that is nearer to it, or wait for its commands to end")

// errReplaced means that the keeper no longer accepts requests of this daemon.
var errReplaced = errors.New("another daemon has come since, and the keeper listens to that one: nothing is started or ended from here any more")

// link is the connection to one keeper. When it breaks while the keeper lives, it is made again,
// and unanswered requests are sent again: every request can be carried out twice without harm.
type link struct {
	pool     *Pool
	number   int
	build    string
	protocol int
	process  *pidfdProcess // the keeper

	mu           sync.Mutex
	change       sync.Cond // signalled when channel or gone changes
	channel      *channel  // nil while there is no connection
	gone         bool      // the keeper is dead, or the pool is closed
	silent       bool      // Open did not wait any longer, and the keeper has not answered yet
	endedInOrder bool      // the keeper has shut down normally
	takenOver    bool      // the keeper accepts requests of another daemon only
	last         uint64
	calls        map[uint64]*call
	waiting      map[*call]struct{} // requests and dials that wait for the keeper, also while there is no connection
	silenceTimer *time.Timer        // runs while waiting is not empty: see reportSilence
	remotes      map[Key]*remote
	unsent       []request // requests without an answer that could not be sent
}

// silenceTimeout is the default of PoolOptions.SilenceTimeout. silenceReportInterval is the time
// between two log lines about a silent keeper, and stopCheckInterval the time between two checks
// whether a keeper that has not answered is stopped: a traced keeper is stopped for moments.
const (
	silenceTimeout        = 5 * time.Second
	silenceReportInterval = time.Minute
	stopCheckInterval     = 100 * time.Millisecond
)

// call is a request that waits for its answer.
type call struct {
	done   chan struct{}
	since  time.Time
	remote *remote // the command that a start returned
	answer message
	broken bool // the connection ended before the answer came
	// wanted is Command.Wanted of a start; granted is set when the link confirms the start.
	wanted  func() bool
	granted bool
}

// dial connects to the keeper and exchanges hello and welcome.
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
	if l.pid() == 0 {
		process, err := openPidfd(pid)
		if err != nil {
			return nil, nil, fmt.Errorf("hold keeper %d (PID %d): %w", l.number, pid, err)
		}
		l.mu.Lock()
		l.process = process
		l.mu.Unlock()
	}
	greeting := request{Number: 1, Verb: verbHello, Hello: &hello{
		Oldest: oldestProtocol, Newest: newestProtocol, Instance: l.pool.instance,
	}}
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

// welcomed takes over the commands of a keeper.
func (l *link) welcomed(c *channel, w *welcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.build, l.protocol = w.Build, w.Protocol
	there := make(map[Key]bool, len(w.Commands))
	for i := range w.Commands {
		command := &w.Commands[i]
		there[command.Key] = true
		if r := l.knowLocked(command); command.Exit == nil && r.cause != "" {
			l.unsent = append(l.unsent, request{Verb: verbEnd, Key: r.Key, Cause: r.cause})
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

// knowLocked returns a command as this link knows it, and takes over its end if it has ended.
func (l *link) knowLocked(c *command) *remote {
	r := l.remotes[c.Key]
	if r == nil {
		r = &remote{command: *c, link: l, done: make(chan struct{})}
		l.remotes[c.Key] = r
	}
	if c.Exit != nil {
		r.finish(c.Exit.exit())
	}
	return r
}

// follow receives the keeper's messages until the keeper is dead or the pool is closed.
func (l *link) follow(c *channel) {
	for {
		err := l.listen(c)
		at, clockErr := now()
		c.close()
		l.resetCalls()
		if c = l.reconnect(errors.Join(err, clockErr)); c == nil {
			l.finish(at)
			return
		}
	}
}

// listen receives messages until the connection fails.
func (l *link) listen(c *channel) error {
	for {
		var m message
		if err := c.receive(&m); err != nil {
			return err
		}
		if m.ConfirmStart {
			l.pool.group.Go(func() { l.begin(c, m.Number) }) // in a goroutine: it reads files
			continue
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

// begin answers the keeper's question whether a start is still wanted. A withdrawn start is not.
func (l *link) begin(c *channel, number uint64) {
	l.mu.Lock()
	start := l.calls[number]
	l.mu.Unlock()
	wanted := start != nil && (start.wanted == nil || start.wanted())
	l.mu.Lock()
	if wanted = wanted && l.calls[number] == start; wanted {
		start.granted = true
	}
	l.mu.Unlock()
	if c.send(request{Number: number, Verb: verbBegin, Wanted: wanted}, nil) != nil {
		c.closeWrite() // its reader sees that, and the start is sent again
	}
}

// withdraw cancels a request that the keeper has not begun to carry out, and reports whether it
// could.
func (l *link) withdraw(number uint64, start *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if start.granted || l.protocol < 3 || l.calls[number] != start {
		return false
	}
	delete(l.calls, number)
	return true
}

func (l *link) event(m *message) {
	if m.Bye {
		l.endedInOrder = true
	}
	if m.Exit == nil {
		return // the keeper's shutdown message, or an event of a newer keeper
	}
	if r := l.remotes[m.Exit.Key]; r != nil {
		r.finish(m.Exit.exit())
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
		c.remote = l.knowLocked(m.Command) // before the next message, which may report its end
	}
	close(c.done)
}

// resetCalls wakes all requests that wait for an answer, so that they are sent again.
func (l *link) resetCalls() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.channel = nil
	for number, c := range l.calls {
		delete(l.calls, number)
		c.broken = true
		close(c.done)
	}
}

// reconnect connects again. It returns nil when the pool is closed and when the keeper has died,
// which becomes visible a moment after its connections end.
func (l *link) reconnect(reason error) *channel {
	ctx := l.pool.ctx
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		if l.process.awaitExit(ctx, time.Now().Add(wait)) == nil {
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
		c, w, err := l.dial(ctx) // without a time limit, for a stopped keeper: its connections end when it dies
		if err == nil {
			l.welcomed(c, w)
			return c
		}
		if errors.Is(err, errReplaced) {
			l.pool.Logger.Error("a keeper is lost to this daemon", "keeper", l.number, "error", err)
			l.mu.Lock()
			l.takenOver = true
			l.mu.Unlock()
			l.pool.replaced.Store(true)
			return nil // the link ends although the keeper lives
		}
		reason = err
	}
	return nil
}

// disconnect ends the connection for good.
func (l *link) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	if l.silenceTimer != nil {
		l.silenceTimer.Stop()
	}
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

// request sends a request and waits for the answer. The error is ErrKeeperDied when the keeper
// died, and errRetiring when it shut down normally. A start is withdrawn when ctx ends.
func (l *link) request(ctx context.Context, r request, c *call, file *os.File) error {
	l.trackCall(c)
	defer l.untrackCall(c)
	withdrawn := func() bool { return r.Verb == verbStart && ctx.Err() != nil && !c.granted && l.protocol > 2 }
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})()
	var failed *channel
	for {
		to, err := l.register(&r, c, failed, withdrawn)
		if err != nil {
			return err
		}
		if err := to.send(r, file); err != nil {
			l.mu.Lock()
			delete(l.calls, r.Number)
			l.mu.Unlock()
			if errors.Is(err, errTooLarge) {
				return err
			}
			failed = to
			// Part of the request may have been sent. The link's reader still reads what a keeper
			// sends at its end, notices the broken connection and connects again.
			to.closeWrite()
			continue
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			if r.Verb == verbStart && l.withdraw(r.Number, c) {
				return ErrUnwanted
			}
			<-c.done
		}
		if !c.broken {
			return refused(&c.answer)
		}
	}
}

// register waits for a connection other than the failed one, and adds a request to its calls.
func (l *link) register(r *request, c *call, failed *channel, withdrawn func() bool) (*channel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.channel == nil || l.channel == failed) && !l.gone && !withdrawn() {
		l.change.Wait()
	}
	switch {
	case withdrawn():
		return nil, ErrUnwanted
	case l.takenOver:
		return nil, errReplaced
	case l.gone && l.endedInOrder:
		return nil, errRetiring // nothing was begun
	case l.gone:
		return nil, ErrKeeperDied
	}
	l.last++
	r.Number, c.done, c.broken = l.last, make(chan struct{}), false
	l.calls[r.Number] = c
	return l.channel, nil
}

// pid returns the PID of the keeper, 0 as long as it is not known.
func (l *link) pid() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pidLocked()
}

func (l *link) pidLocked() int {
	if l.process == nil {
		return 0
	}
	return l.process.pid
}

// trackCall and untrackCall maintain the set of requests that wait for the keeper.
func (l *link) trackCall(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.since = time.Now()
	l.waiting[c] = struct{}{}
	if l.silenceTimer == nil {
		l.silenceTimer = time.AfterFunc(l.pool.SilenceTimeout, l.reportSilence)
	}
}

func (l *link) untrackCall(c *call) {
	l.mu.Lock()
	delete(l.waiting, c)
	l.mu.Unlock()
}

// silentSinceLocked returns when the oldest waiting request began to wait; zero when none waits.
func (l *link) silentSinceLocked() (since time.Time) {
	for c := range l.waiting {
		if since.IsZero() || c.since.Before(since) {
			since = c.since
		}
	}
	return since
}

// reportSilence logs one line for a keeper that does not answer, however many requests wait, and
// repeats it each minute.
func (l *link) reportSilence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silenceTimer = nil
	since := l.silentSinceLocked()
	if since.IsZero() || l.gone {
		return
	}
	next := l.pool.SilenceTimeout - time.Since(since)
	if next <= 0 || l.silent {
		l.pool.Logger.Warn("a keeper does not answer: continue it (kill -CONT) or kill it", "keeper", l.number,
			"pid", l.pidLocked(), "since", since, "waiting", len(l.waiting))
		next = silenceReportInterval
	}
	l.silenceTimer = time.AfterFunc(next, l.reportSilence)
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
		to.closeWrite() // its reader sees that
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
	case refusedUnwanted:
		return ErrUnwanted
	case refusedExhausted:
		return fmt.Errorf("%w in the keeper: %s", syscall.EMFILE, m.Error)
	case refusedUnknown:
		return fmt.Errorf("%w: %s", errors.ErrUnsupported, m.Error)
	case refusedFailed:
	}
	return errors.New(m.Error)
}

// start starts a command in this link's keeper.
func (l *link) start(ctx context.Context, c *Command) (*remote, error) {
	dir, err := filepath.Abs(c.Dir) // the keeper has another working directory
	if err != nil {
		return nil, fmt.Errorf("start %q: working directory: %w", c.Args[0], err)
	}
	waiting := &call{wanted: c.Wanted}
	start := &order{Command: *c, Dir: []byte(dir), Label: []byte(c.Label)}
	err = l.request(ctx, request{Verb: verbStart, Key: c.Key, Start: start}, waiting, c.Output)
	if err != nil {
		return nil, err
	}
	if waiting.remote == nil {
		return nil, fmt.Errorf("start %q: %w", c.Args[0], errFrame)
	}
	return waiting.remote, nil
}
