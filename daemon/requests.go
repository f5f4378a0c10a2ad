package daemon

import (
	"fmt"
	"slices"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// The lines that the daemon writes into the log when it takes a request.
const (
	linePause        = "  Pause requested, pausing..."
	lineResume       = "  Resume requested, resuming..."
	lineCancel       = "  Cancel requested, stopping..."
	lineCancelPaused = "  Cancel requested while paused, stopping..."
	lineForceCancel  = "  Force cancel requested, killing..."
)

// resumeLine is the line for a resume of an operation that has no running work to resume.
func resumeLine(cause statefs.Cause) string {
	if cause == statefs.CauseRelease {
		return lineResume
	}
	return "  Resume requested, waiting for its time again..."
}

// lineNoEffect is the line for a request that changes nothing.
func lineNoEffect(ask statefs.Action, state statefs.State) string {
	return fmt.Sprintf("  %s requested while %s: nothing to do.", ask.Title(), state)
}

// requestHandlers carry out the requests. Requests about a step, of operations with steps, have
// handlers of their own. A request without a handler changes nothing.
var requestHandlers = map[statefs.Action]func(*Daemon, *operation, *request) error{
	statefs.Pause:       (*Daemon).pause,
	statefs.Resume:      (*Daemon).resume,
	statefs.Cancel:      (*Daemon).cancel,
	statefs.ForceCancel: (*Daemon).cancel,
	statefs.Prioritize:  (*Daemon).prioritize,
	statefs.Retry:       (*Daemon).retry,
}

// handleRequests takes the request files and acts on them: cancels first, the others in the order
// in which they were made, so that the last one wins. A request that could not be carried out stays
// pending for the next reconcile.
func (d *Daemon) handleRequests(op *operation, asks []statefs.Action) error {
	if err := d.takeRequests(op, asks); err != nil {
		return err
	}
	for len(op.pendingRequests) > 0 {
		r := op.pendingRequests[0]
		op.pendingRequests = op.pendingRequests[1:]
		if err := d.handleRequest(op, r); err != nil {
			return err
		}
	}
	return nil
}

// takeRequests adds requests to op.pendingRequests, in the order in which they are to be carried
// out. It returns only errors that go away by themselves (resource exhausted).
func (d *Daemon) takeRequests(op *operation, asks []statefs.Action) error {
	for _, ask := range asks {
		if len(op.rec.Steps) > 0 && ask.Spec().OnStep {
			if wait := d.owner.RequestSettleDelay(op.id(), ask, statefs.QuietPeriod); wait > 0 {
				d.reconcileQueue.enqueueAfter(op.id(), wait)
				continue
			}
		}
		t, ok, err := d.owner.Take(op.id(), ask)
		if machine.OutOfFiles(err) || files.DiskFull(err) {
			return err
		}
		if err != nil {
			d.logger.Warn("request ignored", "id", op.id(), "request", ask, "error", err)
			continue
		}
		if ok {
			d.counters.requests.Add(1)
			op.pendingRequests = append(op.pendingRequests, &request{TakenRequest: t})
		}
	}
	slices.SortStableFunc(op.pendingRequests, func(a, b *request) int {
		if a.Action.Cancels() != b.Action.Cancels() {
			if a.Action.Cancels() {
				return -1
			}
			return 1
		}
		return a.At.Compare(b.At)
	})
	return nil
}

func (d *Daemon) handleRequest(op *operation, r *request) error {
	switch {
	case op.cancelling != nil && r.Action == statefs.Cancel:
		if op.cancelling.Action == statefs.Cancel {
			op.cancelling = &r.TakenRequest // the two share one file in taken/
			return nil
		}
		return d.drop(r.TakenRequest) // a force cancel is under way
	case op.cancelling != nil && r.Action == statefs.ForceCancel && d.manages(op.id()):
		return d.forceCancel(op, r)
	case op.cancelling != nil || !d.manages(op.id()):
		return d.drop(r.TakenRequest) // a cancel beats all others; an ended operation has a sealed log
	case len(op.rec.Steps) > 0 && r.Action.Spec().OnStep:
		return d.handleStepRequest(op, r)
	}
	if handle := requestHandlers[r.Action]; handle != nil {
		return handle(d, op, r)
	}
	d.ignoreRequest(op, r)
	return nil
}

// ignoreRequest drops a request that has no effect in the present state, and writes so into the log
// of the operation.
func (d *Daemon) ignoreRequest(op *operation, r *request) {
	d.logLine(op, lineNoEffect(r.Action, op.state))
	d.logger.Info("request means nothing now", "id", op.id(), "request", r.Action, "state", op.state)
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
}

func (d *Daemon) pause(op *operation, r *request) error {
	if op.pausing != nil {
		op.doneRequests = append(op.doneRequests, r.TakenRequest)
		return nil
	}
	if !op.allows(statefs.CausePause) {
		d.ignoreRequest(op, r)
		return nil
	}
	if op.run == nil {
		return d.transitionFor(op, r, linePause, statefs.CausePause)
	}
	// Stop first, then rename: paused means that no work is running.
	stopped := op.run.Pause()
	d.logLine(op, linePause)
	op.pausing = &r.TakenRequest
	op.syncOptionalPause()
	if stopped && op.isStopped() {
		return d.completePause(op)
	}
	return nil
}

// completePause enters the paused state after the work has stopped.
func (d *Daemon) completePause(op *operation) error {
	if op.state == statefs.Running {
		if err := d.transition(op, statefs.CausePause); err != nil {
			return err
		}
	}
	op.doneRequests = append(op.doneRequests, *op.pausing)
	op.pausing = nil
	return nil
}

// repeatPause makes a pause pending again after the work ended before it stopped, so that it applies
// to the state that the operation has now.
func (d *Daemon) repeatPause(op *operation) {
	if op.pausing == nil {
		return
	}
	op.pendingRequests = slices.Insert(op.pendingRequests, 0, &request{TakenRequest: *op.pausing, logged: true})
	op.pausing = nil
	d.reconcileQueue.enqueue(op.id())
}

func (d *Daemon) resume(op *operation, r *request) error {
	if op.pausing != nil {
		// The work has not stopped yet, so it simply continues.
		d.logLine(op, lineResume)
		op.run.Resume()
		op.doneRequests = append(op.doneRequests, *op.pausing, r.TakenRequest)
		op.pausing = nil
		return nil
	}
	switch {
	case op.state != statefs.Paused:
		d.ignoreRequest(op, r)
		return nil
	case op.run == nil:
		cause := d.resumeCause(op)
		return d.transitionFor(op, r, resumeLine(cause), cause)
	}
	return d.transitionFor(op, r, lineResume, statefs.CauseResume)
}

// transitionFor makes the transition of a request. If the marker cannot be moved, the request stays
// pending.
func (d *Daemon) transitionFor(op *operation, r *request, line string, cause statefs.Cause) error {
	if !r.logged {
		d.logLine(op, line)
		r.logged = true
	}
	if err := d.transition(op, cause); err != nil {
		op.pendingRequests = slices.Insert(op.pendingRequests, 0, r)
		return err
	}
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
	return nil
}

func (d *Daemon) cancel(op *operation, r *request) error {
	if !op.allows(statefs.CauseCancel) {
		d.ignoreRequest(op, r)
		return nil
	}
	if r.Action == statefs.ForceCancel {
		return d.forceCancel(op, r)
	}
	d.logCancel(op)
	return d.beginCancel(op, r.TakenRequest, statefs.CauseCancel)
}

// forceCancel cancels an operation without a grace period, even if it is being cancelled
// already. The code of a handler cannot be killed: its context ends, as with every cancel.
func (d *Daemon) forceCancel(op *operation, r *request) error {
	d.logLine(op, lineForceCancel)
	cause := statefs.CauseCancel
	if first := op.cancelling; first != nil {
		cause = op.cancelCause
		if first.Action != r.Action {
			op.doneRequests = append(op.doneRequests, *first) // this request is durable and replaces it
		}
	}
	if op.run != nil {
		op.run.Kill(ErrCancelled)
	}
	d.endOptionalSteps(op, func(r *work.Run) { r.Kill(ErrCancelled) })
	return d.beginCancel(op, r.TakenRequest, cause)
}

func (d *Daemon) logCancel(op *operation) {
	if op.state == statefs.Paused {
		d.logLine(op, lineCancelPaused)
		return
	}
	d.logLine(op, lineCancel)
}

// beginCancel cancels an operation: at once if it has no running work, else when its work has
// ended.
func (d *Daemon) beginCancel(op *operation, t statefs.TakenRequest, cause statefs.Cause) error {
	op.cancelling, op.cancelCause = &t, cause
	if op.run == nil {
		return d.finishAs(op, cause)
	}
	op.run.End(ErrCancelled)
	d.endOptionalSteps(op, func(r *work.Run) { r.End(ErrCancelled) })
	return nil
}

// commitReconcile continues work whose marker a resume has moved, makes the changes of this reconcile (or of
// an earlier failed one) durable, and then drops the requests that led to them.
func (d *Daemon) commitReconcile(op *operation) error {
	if op.state == statefs.Running && op.run != nil && op.pausing == nil && op.run.PauseRequested() {
		// The rename is durable before the work continues.
		if err := d.commit(op.id(), change{}, syncFiles); err != nil {
			return err
		}
		op.run.Resume()
	}
	switch {
	case op.finishedRun != nil:
		return d.finishRun(op)
	case op.unsaved:
		return d.persist(op)
	}
	return d.dropDoneRequests(op)
}

// acceptManualPause applies a pause whose marker has been moved already.
func (d *Daemon) acceptManualPause(op *operation) error {
	if op.run != nil {
		op.run.Pause()
	}
	d.logLine(op, linePause)
	return d.acceptMove(op, statefs.CausePause)
}

// acceptManualResume applies a resume whose marker has been moved already. Without running work the
// operation must be started first.
func (d *Daemon) acceptManualResume(op *operation) error {
	if cause := d.resumeCause(op); op.run == nil && cause != statefs.CauseRelease {
		return d.returnToWaiting(op, cause)
	}
	d.logLine(op, lineResume)
	if err := d.acceptMove(op, statefs.CauseResume); err != nil || op.run != nil {
		return err
	}
	return d.requeue(op)
}

// returnToWaiting moves a marker that a person renamed from paused to running to the state in which
// the operation waits for its time.
func (d *Daemon) returnToWaiting(op *operation, cause statefs.Cause) error {
	to, err := statefs.Next(statefs.Paused, cause)
	if err != nil {
		return err
	}
	if err := d.commit(op.id(), change{from: statefs.Running, to: to}, moveMarker); err != nil {
		return err
	}
	d.logLine(op, resumeLine(cause))
	return d.noteTransition(op, cause)
}

// logLine appends a line of the daemon to the log of an operation. A failure is only reported: the
// request takes effect all the same.
func (d *Daemon) logLine(op *operation, line string) {
	if op.state == statefs.Trailing {
		d.logger.Info("operation", "id", op.id(), "says", line) // the log of the operation is sealed
		return
	}
	log, err := d.openLog(op)
	if err == nil {
		err = log.Line(line)
	}
	if err != nil {
		d.logger.Error("line not written to the log", "id", op.id(), "line", line, "error", err)
	}
}
