package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// The causes for which work is ended before its time. They are what context.Cause gives to a handler.
var (
	// ErrCancelled means that somebody cancelled the operation.
	ErrCancelled = errors.New("the operation is cancelled")
	// ErrInterrupted means that the daemon stops; the operation goes on when it is started again.
	ErrInterrupted = errors.New("the daemon stops")
)

// ErrLeave is the cause with which the context of Daemon.Run ends when commands are to go on without the daemon.
var ErrLeave = errors.New("the daemon stops and leaves its commands running")

// errLeft means that the daemon stops and leaves the commands to their keeper.
var errLeft = errors.New("the daemon stops and its commands go on")

// errLogLimit means that the log grew beyond the job's max_log.
var errLogLimit = errors.New("the log is larger than max_log allows")

// run is one start of an operation's work. Its goroutine ends when the work and all of its processes have ended.
type run struct {
	id     statefs.ID
	number int
	def    *catalog.Definition
	step   stepOf
	// side says that it is an optional step, which has files of its own.
	side    bool
	params  catalog.Params
	owner   *statefs.Owner
	log     *stream.Writer
	logger  *slog.Logger
	files   logWatch
	handler Handler
	environ func() []string
	laneEnv []string
	grace   time.Duration
	starter keeper.Starter

	gate     gate
	report   report
	progress progressFile
	told     func(statefs.Progress) // called with what is written to it; nil: not called
	stall    stall
	timeout  timeout
	phased   func() // called when the work says another phase
	begun    func() // called when the work has all the files that it needs to begin
	scratch  scratch
	outputs  itemOutputs
	commands commands
	// class is that of its failure, "" when it has none.
	class catalog.Class
	// adopted says that an earlier daemon has begun this run.
	adopted bool
	// elapsed is how long it worked before this daemon took it over.
	elapsed time.Duration
	pid     atomic.Int64  // of the command of the whole run; 0 before it starts
	settled atomic.Bool   // that command has run for a while
	left    atomic.Bool   // a command goes on without the daemon
	leaving chan struct{} // closed when the daemon stops and leaves commands running

	ctx    context.Context //nolint:containedctx // the run is what the context is about: it ends with it
	cancel context.CancelCauseFunc
	done   chan struct{}
	// redoFrom is the first run whose failed items count as done.
	redoFrom int
	// inherited is how many items the report began with.
	inherited int
	// retryOf is the operation that this one repeats; failedOnly has it do only what failed there.
	retryOf    *statefs.ID
	failedOnly bool
	earlier    earlierItems
	// err and exit may be read once done is closed.
	err  error
	exit *keeper.Exit
	used used // by commands that have ended
	// asked is how long the command wants to wait before it is tried again, 0 when it does not say. It is like err.
	asked time.Duration

	since    time.Time    // when this daemon began with it
	wroteAt  atomic.Int64 // when wrote last gave a heartbeat, in nanoseconds since the run began, which no setting of the clock changes
	parallel atomic.Bool  // several items may be under way
	ending   sync.Mutex   // held while an item ends
	current  sync.Mutex   // guards item
	item     *Item
}

// work is what kind of work a run does; it returns when everything it began has ended.
type work func(ctx context.Context, r *run) error

// start begins the work. ended is called when it is over, stopped whenever a pause has taken effect later than it was asked.
func (r *run) start(do work, group *sync.WaitGroup, ended, stopped, changed func()) {
	r.gate.stopped = stopped
	r.phased = changed
	r.gate.paused = func(paused bool) {
		now := time.Now()
		r.stall.hold(paused, now)
		r.timeout.hold(paused, now)
	}
	now := time.Now()
	r.stall.begin(r.def.StallAfter, now, changed)
	if r.def.Work() != catalog.WorkRun {
		r.timeout.begin(r.restOfTime(), now, r.timedOut)
	}
	if r.gate.held() {
		r.gate.paused(true) // it was paused when an earlier daemon went away
	}
	r.done = make(chan struct{})
	r.report.run, r.report.step = r.number, r.step.name()
	r.report.openItems = func() (io.WriteCloser, error) { return r.appendItems() }
	r.progress.write = func(p statefs.Progress) error {
		if r.side {
			return nil // the progress of the operation is that of its required steps
		}
		p = r.step.progress(p)
		if r.told != nil {
			r.told(p)
		}
		return r.owner.WriteProgress(r.id, p)
	}
	group.Go(func() {
		defer ended()
		defer close(r.done)
		defer r.begun()
		r.err = r.guard(do)
		r.stall.end()
		r.timeout.end()
		r.progress.close()
		if err := r.report.close(); err != nil && r.err == nil {
			r.err = fmt.Errorf("write the item results: %w", err)
		}
	})
}

// panicCode is the error code of an operation whose work panicked.
const panicCode = "panic"

// guard turns a panic of the work into an error: one operation must not take the others down. Each goroutine of a run has one.
func (r *run) guard(do work) (err error) {
	defer func() {
		if p := recover(); p != nil {
			who := "work"
			if r.handler.Run != nil {
				who = "handler"
			}
			r.logger.Error("work panicked", "id", r.id, "in", who, "panic", p, "stack", string(debug.Stack()))
			err = &workError{code: panicCode, err: fmt.Errorf("the %s panicked: %v", who, p)}
		}
	}()
	return do(r.ctx, r)
}

// ended reports whether the work is over.
func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// leave asks the work to end without its commands, which go on.
func (r *run) leave() {
	r.end(errLeft)
	if !isClosed(r.leaving) { // one look at a time calls this
		close(r.leaving)
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

// end asks the work to end for a cause; the first cause counts.
func (r *run) end(cause error) { r.cancel(cause) }

// endCause returns why the work was asked to end, nil when it was not.
func (r *run) endCause() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// line appends a line to the log, as soon as there is room for it. A log that cannot be written for another reason ends the run: going on
// would lose what the work says.
func (r *run) line(text string) {
	if err := r.patiently(r.ctx, func() error { return r.log.Line(text) }); err != nil {
		r.cancel(&workError{code: "log_failed", err: err})
	}
	r.wrote()
}

// said notes progress and has it written when its time has come.
func (r *run) said(done int64, total *int64, phase string) {
	now := time.Now()
	r.stall.alive(now)
	entered := phase != "" && phase != r.report.current().Phase
	r.progress.put(r.report.say(done, total, phase, now), now)
	if entered {
		r.phased()
	}
}

// wroteEvery is the shortest time between two heartbeats of work that writes to its log: it may do so millions of times a second.
const wroteEvery = 100 * time.Millisecond

// wrote notes that the work wrote to its log.
func (r *run) wrote() {
	now := int64(time.Since(r.since))
	if last := r.wroteAt.Load(); now-last >= int64(wroteEvery) && r.wroteAt.CompareAndSwap(last, now) {
		r.alive()
	}
}

// alive notes that the work gave a sign of life, which moves the time of the progress and nothing else.
func (r *run) alive() {
	now := time.Now()
	r.stall.alive(now)
	r.progress.put(r.report.touch(now), now)
}

// workError is an error of the work with a code for programs.
type workError struct {
	code string
	err  error
}

func (e *workError) Error() string { return e.err.Error() }
func (e *workError) Unwrap() error { return e.err }
