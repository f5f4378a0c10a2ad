package daemon

import (
	"fmt"
	"slices"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// lineNoEffect is the line for a request that changes nothing.
func lineNoEffect(ask statefs.Action, state statefs.State) string {
	return fmt.Sprintf("  %s requested while %s: nothing to do.", ask.Title(), state)
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
		t, ok, err := d.owner.Requests.Take(op.id(), ask)
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

// handleRequest carries out what a request means for the operation in its present state.
func (d *Daemon) handleRequest(op *operation, r *request) error {
	answer := decide.RequestOf(d.snapshot(op), r.Action, d.olderThanState(op, r) || alreadyApplied(op.rec, r))
	switch answer.Effect {
	case decide.None:
		d.ignoreRequest(op, r)
	case decide.Drop:
		return d.drop(r.TakenRequest)
	case decide.Done:
		op.doneRequests = append(op.doneRequests, r.TakenRequest)
	case decide.Merge:
		op.cancelling = &r.TakenRequest
	case decide.Transition:
		return d.transitionFor(op, r, answer)
	case decide.Stop:
		return d.beginPause(op, r, answer.Line)
	case decide.Continue:
		d.logLine(op, answer.Line)
		op.run.Resume()
		op.doneRequests = append(op.doneRequests, *op.pausing, r.TakenRequest)
		op.pausing = nil
	case decide.Cancel:
		d.logLine(op, answer.Line)
		return d.beginCancel(op, r.TakenRequest, answer.Cause)
	case decide.ForceCancel:
		d.logLine(op, answer.Line)
		return d.forceCancel(op, r)
	case decide.Prioritize:
		return d.prioritize(op, r)
	case decide.Retry:
		return d.retry(op, r, answer)
	case decide.Step:
		return d.handleStepRequest(op, r)
	case decide.Undo, decide.Restore, decide.Start, decide.WaitAgain: // of markers
	}
	return nil
}

// ignoreRequest drops a request that has no effect in the present state, and writes so into the log
// of the operation.
func (d *Daemon) ignoreRequest(op *operation, r *request) {
	d.logLine(op, lineNoEffect(r.Action, op.state))
	d.logger.Info("request has no effect in this state", "id", op.id(), "request", r.Action, "state", op.state)
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
}

// beginPause stops the work first, and renames the marker when it has stopped: paused means that no work is running.
func (d *Daemon) beginPause(op *operation, r *request, line string) error {
	stopped := op.run.Pause()
	d.logLine(op, line)
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

// transitionFor makes the transition of a request. If the marker cannot be moved, the request stays
// pending.
func (d *Daemon) transitionFor(op *operation, r *request, answer decide.Answer) error {
	if !r.logged {
		d.logLine(op, answer.Line)
		r.logged = true
	}
	if err := d.transition(op, answer.Cause); err != nil {
		op.pendingRequests = slices.Insert(op.pendingRequests, 0, r)
		return err
	}
	op.doneRequests = append(op.doneRequests, r.TakenRequest)
	return nil
}

// forceCancel cancels an operation without a grace period, even if it is being cancelled
// already. The code of a handler cannot be killed: its context ends, as with every cancel.
func (d *Daemon) forceCancel(op *operation, r *request) error {
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

// returnToWaiting moves a marker that a person renamed from paused to running to the state in which
// the operation waits for its time.
func (d *Daemon) returnToWaiting(op *operation, move decide.Answer) error {
	to, err := statefs.Next(statefs.Paused, move.Cause)
	if err != nil {
		return err
	}
	if err := d.commit(op.id(), change{from: statefs.Running, to: to}, moveMarker); err != nil {
		return err
	}
	d.logLine(op, move.Line)
	return d.noteTransition(op, move.Cause)
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
