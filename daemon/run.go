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
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// The causes with which work is ended early. A handler gets them from context.Cause.
var (
	// ErrCancelled means that the operation was cancelled.
	ErrCancelled = errors.New("the operation is cancelled")
	// ErrInterrupted means that the daemon stops; the operation continues when the daemon starts again.
	ErrInterrupted = errors.New("the daemon stops")
)

// ErrDetach is the cause with which the context of Daemon.Run ends if commands are to continue
// without the daemon.
var ErrDetach = errors.New("the daemon stops and leaves its commands running")

// errDetached means that the daemon stops and leaves the commands to their keeper.
var errDetached = errors.New("the daemon stops and its commands go on")

// errLogLimit means that the log grew beyond the job's max_log.
var errLogLimit = errors.New("the log is larger than max_log allows")

// run is one start of an operation's work. Its goroutine ends when the work and all of its
// processes have ended.
type run struct {
	id     statefs.ID
	number int
	def    *catalog.Definition
	step   runStep
	// optional is set for an optional step, which has its own log and item file.
	optional bool
	params   catalog.Params
	owner    *statefs.Owner
	log      *stream.Writer
	logger   *slog.Logger
	files    logWatch
	handler  Handler
	environ  func() []string
	laneEnv  []string
	grace    time.Duration
	// stallAfter is how long the work may give no sign of life before it is reported as stalled; 0
	// disables that.
	stallAfter time.Duration
	starter    keeper.Starter

	gate     gate
	report   report
	progress progressFile
	publish  func(statefs.Progress) // called with each progress that is written; may be nil
	stall    stall
	timeout  timeout
	onPhase  func() // called when the work reports another phase
	onBegun  func() // called when the work has all the files that it needs to begin
	scratch  scratch
	outputs  itemOutputs
	commands commands
	// class is the class of its failure, "" if there is none.
	class catalog.Class
	// adopted is set if an earlier daemon started this run.
	adopted bool
	// elapsed is how long the run had worked before this daemon adopted it.
	elapsed    time.Duration
	pid        atomic.Int64  // of the command of the whole run; 0 before it starts
	pidSettled atomic.Bool   // that command has run for some time
	detached   atomic.Bool   // a command continues without the daemon
	forced     atomic.Bool   // commands get no grace period when they are ended
	detaching  chan struct{} // closed when the daemon stops and leaves commands running

	ctx    context.Context //nolint:containedctx // the run is what the context is about: it ends with it
	cancel context.CancelCauseFunc
	done   chan struct{}
	// redoFrom is the first run whose failed items count as done.
	redoFrom int
	// inherited is how many items the report began with.
	inherited int
	// retryOf is the operation that this one repeats; with failedOnly it repeats only the items
	// that failed there.
	retryOf    *statefs.ID
	failedOnly bool
	earlier    earlierItems
	// err and exit may be read once done is closed.
	err   error
	exit  *keeper.Exit
	usage resourceUsage // by commands that have ended
	// retryAfter is the wait that the command requests before the next attempt, 0 for none. It may
	// be read like err.
	retryAfter time.Duration

	begunAt time.Time // when this daemon began with the run
	// lastHeartbeat is when noteLogWrite last gave a heartbeat, in monotonic nanoseconds since
	// begunAt
	lastHeartbeat atomic.Int64
	parallel      atomic.Bool // several items may run concurrently
	itemEndMu     sync.Mutex  // held while an item ends
	itemMu        sync.Mutex  // guards item
	item          *Item
}

// work does one kind of work for a run. It returns when everything that it started has ended.
type work func(ctx context.Context, r *run) error

// start begins the work. It calls ended when the work is over, stopped whenever a pause takes
// effect later than it was requested, and changed when the phase or the stall state changes.
func (r *run) start(do work, group *sync.WaitGroup, ended, stopped, changed func()) {
	r.gate.onStopped = stopped
	r.onPhase = changed
	r.gate.onPauseChange = func(paused bool) {
		now := time.Now()
		r.stall.setPaused(paused, now)
		r.timeout.setPaused(paused, now)
	}
	now := time.Now()
	r.stall.begin(r.stallAfter, now, changed)
	if r.def.Work() != catalog.WorkRun {
		r.timeout.begin(r.remainingTimeout(), now, r.timedOut)
	}
	if r.gate.pauseRequested() {
		r.gate.onPauseChange(true) // it was paused when an earlier daemon stopped
	}
	r.done = make(chan struct{})
	r.report.run, r.report.step = r.number, r.step.name()
	r.report.owner = r.owner
	r.report.openItems = func() (io.WriteCloser, error) { return r.appendItems() }
	r.progress.write = func(p statefs.Progress) error {
		if r.optional {
			return nil // the progress of the operation is that of its required steps
		}
		p = r.step.progress(p)
		if r.publish != nil {
			r.publish(p)
		}
		return r.owner.WriteProgress(r.id, p)
	}
	group.Go(func() {
		defer ended()
		defer close(r.done)
		defer r.onBegun()
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

// guard turns a panic of the work into an error: one operation must not take down the others. Each
// goroutine of a run needs its own guard.
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

// detach ends the work but leaves its commands running.
func (r *run) detach() {
	r.end(errDetached)
	if !isClosed(r.detaching) { // only the reconcile of the operation calls this
		close(r.detaching)
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

// end requests the end of the work for a cause; the first cause counts.
func (r *run) end(cause error) { r.cancel(cause) }

// kill is end without a grace period, even for commands that are being ended already.
func (r *run) kill(cause error) {
	r.forced.Store(true)
	r.end(cause)
	r.gate.kill(causeText(r.endCause()))
}

// endCommand ends a command of the run for a cause.
func (r *run) endCommand(p keeper.Running, cause error) {
	if r.forced.Load() {
		p.Kill(causeText(cause))
		return
	}
	p.End(causeText(cause))
}

// endCause returns why the work was told to end, nil if it was not.
func (r *run) endCause() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// logLine appends a line to the log, and retries while resources are exhausted. Any other error
// ends the run: output must not be lost.
func (r *run) logLine(text string) {
	if err := r.retryWhileExhausted(r.ctx, func() error { return r.log.Line(text) }); err != nil {
		r.cancel(&workError{code: "log_failed", err: err})
	}
	r.noteLogWrite()
}

// setProgress records progress and schedules its write.
func (r *run) setProgress(done int64, total *int64, phase string) {
	now := time.Now()
	r.stall.alive(now)
	entered := phase != "" && phase != r.report.current().Phase
	r.progress.put(r.report.setProgress(done, total, phase, now), now)
	if entered {
		r.onPhase()
	}
}

// logHeartbeatEvery is the shortest time between two heartbeats of work that writes to its log,
// which it may do millions of times a second.
const logHeartbeatEvery = 100 * time.Millisecond

// noteLogWrite records a heartbeat because the work wrote to its log.
func (r *run) noteLogWrite() {
	now := int64(time.Since(r.begunAt))
	if last := r.lastHeartbeat.Load(); now-last >= int64(logHeartbeatEvery) && r.lastHeartbeat.CompareAndSwap(last, now) {
		r.alive()
	}
}

// alive records a heartbeat, which changes only the time of the progress.
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
