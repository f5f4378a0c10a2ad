package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/catalog"
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

// end is why work is ended early: the transition that follows, and the word that a keeper keeps for the next daemon.
type end struct {
	cause statefs.Cause
	err   error
	word  string
}

var ends = []end{
	{statefs.CauseCancel, ErrCancelled, "cancelled"},
	{statefs.CauseMarkerMissing, ErrCancelled, "cancelled"},
	{statefs.CauseReject, ErrCancelled, "cancelled"},
	{statefs.CauseInterrupted, ErrInterrupted, "interrupted"},
}

// findEnd returns the first of ends that matches, the zero value if none does.
func findEnd(match func(end) bool) (found end) {
	if i := slices.IndexFunc(ends, match); i >= 0 {
		found = ends[i]
	}
	return found
}

// ErrorOf returns the error with which work is ended for a transition.
func ErrorOf(cause statefs.Cause) error {
	return findEnd(func(e end) bool { return e.cause == cause }).err
}

// CauseOf returns the cause of the transition for which work was ended with err, "" if err is another error.
func CauseOf(err error) statefs.Cause {
	return findEnd(func(e end) bool { return errors.Is(err, e.err) }).cause
}

// ErrDetached means that the daemon stops and leaves the commands to their keeper.
var ErrDetached = errors.New("the daemon stops and its commands continue")

// errLogLimit means that the log grew beyond the job's max_log.
var errLogLimit = errors.New("the log is larger than max_log allows")

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
}

// kind does one kind of work for a run. It returns when everything that it started has ended.
type kind func(ctx context.Context, r *Run) error

// New prepares a run without starting it.
func (h *Host) New(s Spec) (*Run, error) {
	t, err := h.newTask(&s)
	if err != nil {
		return nil, err
	}
	r := &Run{task: t, log: s.Log, begun: s.Begun, done: make(chan struct{})}
	r.report.run, r.report.step, r.report.output = r.number, r.StepName(), h.Owner.Output
	r.report.openItems = func() (io.WriteCloser, error) {
		return h.Owner.Output.AppendItems(r.id, r.optionalStepName())
	}
	r.pulse.report, r.changed, r.progress.write = &r.report, s.Changed, t.progressWriter(s.Progressed)
	r.onStopped, r.onPauseChange = s.Changed, r.setPaused
	r.detaching = make(chan struct{})
	if t.adopted && !t.optional {
		r.report.progress = t.earlierProgress(s.Record)
	}
	switch t.def.Work() {
	case catalog.WorkHandler:
		handler, ok := h.Handlers[t.def.Handler]
		if !ok {
			return nil, fmt.Errorf("job %s: this program has no handler %q", t.def.Address(), t.def.Handler)
		}
		r.do = handler.work
		if handler.Total != nil {
			r.report.total = handler.Total(t.params)
		}
	case catalog.WorkItems:
		r.do = itemsWork
	case catalog.WorkRun, catalog.WorkSteps:
		r.do = commandWork
	}
	if !t.isHandler() {
		if err := r.makeFolders(s.Record); err != nil {
			return nil, err
		}
	}
	if t.def.Work() == catalog.WorkItems {
		// Open it now, when a full disk only delays the start, and not when the first item ends.
		if r.report.items, err = r.report.openItems(); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

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
	if errors.Is(cause, ErrDetached) || cause != nil && isClosed(r.detaching) {
		r.detached.Store(r.Detached() || len(r.unclaimed()) > 0)
		return
	}
	for _, a := range r.unclaimed() {
		p := r.claim(a.number)
		r.commands.end(p, cmp.Or(cause, failure, errUnclaimed))
		<-p.Done()
		r.ended(p)
		p.Acknowledge()
	}
}

// errUnclaimed ends a command that the work of its run did without.
var errUnclaimed = errors.New("the work has ended")

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
func (r *Run) Ended() bool { return isClosed(r.done) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

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
	if !isClosed(r.detaching) {
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

// Error is an error of the work with a code for programs.
type Error struct {
	Code string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
