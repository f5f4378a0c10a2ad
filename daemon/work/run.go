package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/stream"
)

// Run is one start of an operation's work. Its goroutine ends when the work and all of its
// processes have ended.
type Run struct {
	task
	gate
	pulse
	commands

	log    *stream.Writer
	report Report
	do     kind
	begun  func()
	ctx    context.Context //nolint:containedctx // the run is what the context is about: it ends with it
	cancel context.CancelCauseFunc
	done   chan struct{}
	// outcome may be read once done is closed.
	outcome Outcome
	// artifacts is set once the handler has asked for one.
	artifacts atomic.Bool
}

// kind does one kind of work for a run. It returns when everything that it started has ended.
type kind func(ctx context.Context, r *Run) error

// Start begins the work. group counts it until it is over.
func (r *Run) Start(group *sync.WaitGroup) {
	r.pulse.begin(&r.task, func() { r.End(r.timeoutError()) })
	if r.PauseRequested() {
		r.setPaused(true) // it was paused when an earlier daemon stopped
	}
	group.Go(func() {
		defer r.changed()
		defer close(r.done)
		defer r.begun()
		err := r.guard(r.do)
		r.endUnclaimed(err)
		r.pulse.end()
		if closed := r.report.close(); closed != nil && err == nil {
			err = fmt.Errorf("write the item results: %w", closed)
		}
		r.outcome.Err = err
	})
}

// endUnclaimed ends the commands of an earlier daemon that the work did not claim before it ended with failure: a
// list of items that cannot be read, for example.
func (r *Run) endUnclaimed(failure error) {
	cause := r.EndCause()
	if errors.Is(cause, ErrDetached) || cause != nil && notify.IsClosed(r.detaching) {
		r.detached.Store(r.Detached() || len(r.unclaimed()) > 0)
		return
	}
	for _, a := range r.unclaimed() {
		p := r.claim(a.number)
		r.commands.end(p, cmp.Or(cause, failure, errors.New("the work has ended")))
		<-p.Done()
		r.ended(p)
		p.Acknowledge()
	}
}

// panicCode is the error code of an operation whose work panicked.
const panicCode = "panic"

// guard turns a panic of the work into an error: one operation must not take down the others. Each
// goroutine of a run needs its own guard.
func (r *Run) guard(do kind) error {
	who := "work"
	if r.isHandler() {
		who = "handler"
	}
	return r.guardPart(who, do)
}

// guardPart is guard for a part of the run with a name.
func (r *Run) guardPart(who string, do kind) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.host.Logger.Error("work panicked", "id", r.id, "in", who, "panic", p, "stack", string(debug.Stack()))
			err = &Error{Code: panicCode, Err: fmt.Errorf("the %s panicked: %v", who, p)}
		}
	}()
	return do(r.ctx, r)
}

// Ended reports whether the work is over.
func (r *Run) Ended() bool { return notify.IsClosed(r.done) }

// End requests the end of the work for a cause; the first cause counts.
func (r *Run) End(cause error) { r.cancel(cause) }

// Kill is End without a grace period, even for commands that are being ended already.
func (r *Run) Kill(cause error) {
	r.forced.Store(true)
	r.End(cause)
	r.kill(causeText(r.EndCause()))
}

// Stop ends the work because the daemon stops. If leave is set, commands go on without the daemon. It
// is called by one goroutine at a time.
func (r *Run) Stop(leave bool) {
	if !leave || r.isHandler() {
		r.End(ErrInterrupted)
		return
	}
	r.End(ErrDetached)
	if !notify.IsClosed(r.detaching) {
		close(r.detaching)
	}
}

// EndCause returns the cause by which the end of the work was requested, nil if it was not.
func (r *Run) EndCause() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// Report returns what the work has reported.
func (r *Run) Report() *Report { return &r.report }

// Progress returns the progress of the operation as the work reported it last; its time is zero
// before the first heartbeat.
func (r *Run) Progress() statefs.Progress {
	p := r.report.current()
	if p.At.IsZero() {
		return p
	}
	return r.step.ofOperation(p)
}

// PhaseRecorded reports whether the record has the phase that the work reported last.
func (r *Run) PhaseRecorded(rec *statefs.Record) bool {
	phase := r.report.current().Phase
	if r.step.def == nil {
		return cmp.Or(phase, statefs.FirstPhase) == rec.Phase
	}
	return phase == "" || rec.Progress != nil && phase == r.step.ofStep(*rec.Progress).Phase
}

// logLine appends a line to the log, and retries while resources are exhausted. Any other error
// ends the run: output must not be lost.
func (r *Run) logLine(text string) {
	if err := r.retryWhileExhausted(r.ctx, func() error { return r.log.Line(text) }); err != nil {
		r.cancel(&Error{Code: "log_failed", Err: err})
	}
	r.noteLogWrite()
}
