package daemon

import (
	"errors"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/watch"
)

// retryInterval is the delay before an operation is reconciled again after an error that may go
// away, such as a full disk.
const retryInterval = time.Second

// reconcileID compares what exists on disk of one operation with what the daemon knows, and acts.
// Nothing else changes an operation, and at most one reconcile runs per ID.
func (d *Daemon) reconcileID(id statefs.ID, names statefs.NameSet) {
	defer d.drain.checkSoon()
	d.runReconcile(id, func() error {
		if err := d.activate(id); err != nil {
			return err
		}
		d.runCallbacks(id)
		sight, err := d.observe(id, names)
		if err != nil {
			return err
		}
		if len(sight.Irregular) > 0 {
			d.strayFiles.uncounted.Store(true)
		}
		op := d.operation(id)
		if op == nil {
			err = d.adopt(id, sight)
			if op = d.operation(id); op == nil {
				seen := sight.States
				if err != nil || d.stopping.Load() {
					seen = nil // it may be ours
				}
				d.unsettledIDs.set(id, len(sight.States) > 0, seen...)
				d.earlyRequests.set(id, len(sight.States) == 0 && len(sight.Requests) > 0)
				d.waitFollowers.setWaiting(id, false)
				d.admission.reconciled(id, decide.Outside, err)
				return err
			}
			d.earlyRequests.set(id, false)
			op.noteObservation(sight)
			d.publish(op)
			if err != nil || decide.Markers(op.state, sight.States) != decide.Kept {
				d.reconcileQueue.enqueue(id) // the marker has changed since the observation
				return err
			}
			sight.Irregular = nil // adopt has moved these to corrupt/
		}
		err = d.reconcile(op, sight)
		d.noteCarriedOut(op)
		d.unsettledIDs.set(id, d.manages(id) && op.missing != missingMarker{})
		d.admission.syncQueue(op, d.manages(id))
		d.admission.reconciled(id, op.standing, err)
		d.publish(op)
		d.publishWaiting(op)
		if d.manages(id) {
			d.setAlarm(op)
		}
		if op.run == nil && op.finishedRun == nil {
			d.closeLog(op) // an operation that only waits must not use up the open files
		}
		if err == nil && d.manages(id) {
			op.evict()
		}
		return err
	})
}

// runReconcile handles the error of a reconcile: a failing disk ends the daemon, a marker that was
// moved during the reconcile means another reconcile, and any other error is reported and retried.
func (d *Daemon) runReconcile(id statefs.ID, look func() error) {
	err := look()
	var sync *files.SyncError
	var gone *watch.GoneError
	var folder *statefs.FolderGoneError
	if !errors.Is(err, errMoved) {
		d.moveBackoff.forget(id)
	}
	switch {
	case err == nil:
		d.failing.succeeded(id)
	case errors.As(err, &sync), errors.As(err, &gone), errors.As(err, &folder), errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.EROFS):
		d.fail(err)
	case errors.Is(err, errNotReady):
		d.enqueueWhenReady(id)
	case errors.Is(err, errMoved):
		if wait := d.moveBackoff.next(id); wait > 0 {
			d.reconcileQueue.enqueueAfter(id, wait)
		} else {
			d.reconcileQueue.enqueue(id)
		}
	default:
		d.counters.failedReconciles.Add(1)
		d.failing.failed(id, err, time.Now())
		if !d.stopping.Load() {
			d.reconcileQueue.enqueueAfter(id, retryInterval)
		}
	}
}

// enqueueWhenReady enqueues an operation once the daemon serves.
func (d *Daemon) enqueueWhenReady(id statefs.ID) {
	d.mu.Lock()
	d.startupBacklog = append(d.startupBacklog, id)
	d.mu.Unlock()
	if isClosed(d.ready) {
		d.reconcileQueue.enqueue(id)
	}
}

// enqueueAfter enqueues an operation after wait.
func (d *Daemon) enqueueAfter(id statefs.ID, wait time.Duration) {
	time.AfterFunc(wait, func() { d.reconcileQueue.enqueue(id) })
}

// errMoved means that another process renamed a marker between the observation and the action.
var errMoved = errors.New("the marker was moved meanwhile")

// reconcile reconciles an operation that the daemon manages.
func (d *Daemon) reconcile(op *operation, sight statefs.Observation) error {
	if err := d.checkMarkerIdentity(op, sight); err != nil {
		return err
	}
	if err := d.finishOptionalSteps(op); err != nil {
		return err
	}
	op.syncOptionalPause()
	if op.run != nil && op.run.Ended() {
		return d.recordWorkEnd(op, sight)
	}
	if !op.unrecordedStart.IsZero() {
		if err := d.recordStartIfDue(op, sight); err != nil {
			return err
		}
	}
	if d.stopping.Load() {
		if op.run != nil {
			op.run.Stop(d.detaching.Load())
		}
		d.endOptionalSteps(op, func(r *work.Run) { r.Stop(d.detaching.Load()) })
		return nil
	}
	if op.cancelling != nil {
		if !op.working() {
			return d.finishAs(op, op.cancelCause) // its end could not be recorded before
		}
		return d.handleRequests(op, sight.Requests) // only its end counts now
	}
	if live, err := d.reconcileFiles(op, sight); !live || err != nil {
		return err
	}
	if ended, err := d.expire(op); ended || err != nil {
		return err
	}
	if err := d.queueIfDue(op); err != nil {
		return err
	}
	switch {
	case op.state == statefs.Queued && d.draining():
		return nil // left to the next daemon
	case op.state == statefs.Queued:
		return d.reconcileQueued(op)
	case op.state == statefs.Trailing:
		return d.reconcileTrailing(op)
	}
	return d.reconcileActive(op)
}

// recordWorkEnd records the end of work. If a person moved or removed the marker just before, it handles that first,
// and the next reconcile records the end.
func (d *Daemon) recordWorkEnd(op *operation, sight statefs.Observation) error {
	err := d.finish(op)
	if err == nil && d.manages(op.id()) {
		err = d.beginOptionalSteps(op)
		if len(sight.Requests)+len(op.pendingRequests) > 0 {
			d.reconcileQueue.enqueue(op.id()) // nothing later in this call handles them
		}
	}
	if !errors.Is(err, errMoved) || d.stopping.Load() {
		return err
	}
	if _, err := d.compareMarker(op, sight); err != nil {
		return err
	}
	return errMoved
}

// reconcileFiles acts on the markers and the requests, and makes the changes durable. It returns false if nothing more
// can be done in this reconcile.
func (d *Daemon) reconcileFiles(op *operation, sight statefs.Observation) (live bool, err error) {
	d.setAside(op, sight.Irregular)
	if there, err := d.compareMarker(op, sight); err != nil || !there {
		return false, err
	}
	if err := d.handleRequests(op, sight.Requests); err != nil {
		return false, err
	}
	op.syncOptionalPause()
	if op.pausing != nil && op.isStopped() {
		if err := d.completePause(op); err != nil {
			return false, err
		}
	}
	if !d.manages(op.id()) {
		return false, nil
	}
	return true, d.commitReconcile(op)
}

// reconcileQueued starts a queued operation, unless it waits for its parents, a gate, or the queue.
func (d *Daemon) reconcileQueued(op *operation) error {
	if waits, err := d.waitsForParents(op); waits || err != nil {
		return err
	}
	elsewhere := false
	if len(op.rec.Steps) > 0 {
		var err error
		if elsewhere, err = d.advanceQueued(op); err != nil {
			return err
		}
	}
	if !elsewhere && d.admission.tryAdmit(op) {
		if err := d.startOperation(op); err != nil {
			return err
		}
	}
	if !d.manages(op.id()) {
		return nil
	}
	return d.beginOptionalSteps(op)
}

// reconcileActive starts the optional steps that are ready, and records what the work reports.
func (d *Daemon) reconcileActive(op *operation) error {
	if err := d.beginOptionalSteps(op); err != nil {
		return err
	}
	if err := d.recordStall(op); err != nil {
		return err
	}
	return d.recordPhase(op)
}

// compareMarker brings the marker and the daemon's knowledge into line. It returns false when
// nothing more can be done in this reconcile.
func (d *Daemon) compareMarker(op *operation, sight statefs.Observation) (bool, error) {
	found := decide.Markers(op.state, sight.States)
	if found == decide.Missing {
		return false, d.confirmMissingMarker(op)
	}
	op.missing = missingMarker{}
	op.misplaced.Store(false)
	switch found { //nolint:exhaustive // a kept marker needs nothing
	case decide.Extra:
		return true, d.removeDuplicateMarkers(op, sight.States)
	case decide.Moving:
		return false, errMoved
	case decide.Moved:
		return true, d.acceptManualMove(op, sight.States[0])
	}
	return true, nil
}

// removeDuplicateMarkers removes markers that were created beside the daemon's own. A marker that
// is being renamed can be seen under both names. Two markers exist only if the names have different
// identities, or the same identity and a link count of two.
func (d *Daemon) removeDuplicateMarkers(op *operation, states []statefs.State) error {
	for _, state := range states {
		if state == op.state {
			continue
		}
		ours, _, err := d.owner.Identify(statefs.MarkerName(op.id(), op.state))
		if err != nil {
			return errMoved
		}
		other, names, err := d.owner.Identify(statefs.MarkerName(op.id(), state))
		if err != nil {
			continue
		}
		if ours.Same(other) && names < 2 {
			return errMoved
		}
		if known := op.shown.Marker; !ours.Same(known) && other.Same(known) {
			// The daemon's marker was moved and another file was put in its place: the move counts.
			if err := d.commit(op.id(), change{from: op.state}, removeExtra); err != nil {
				return err
			}
			return errMoved
		}
		d.counters.putBack.Add(1)
		d.logger.Warn("second marker removed", "id", op.id(), "marker", state, "state", op.state)
		if err := d.commit(op.id(), change{from: state}, removeExtra); err != nil {
			return err
		}
	}
	return nil
}

// acceptManualMove treats a marker that a person renamed as the request it corresponds to, or moves
// it back.
func (d *Daemon) acceptManualMove(op *operation, to statefs.State) error {
	move := decide.MoveOf(d.snapshot(op), to)
	if move.Effect == decide.Undo {
		return d.undoMove(op, to)
	}
	d.logger.Info("marker moved manually", "id", op.id(), "from", op.state, "to", to)
	switch move.Effect { //nolint:exhaustive // the others need nothing more
	case decide.Retry:
		return d.acceptManualRetry(op, to)
	case decide.WaitAgain:
		return d.returnToWaiting(op, move)
	case decide.Stop:
		op.run.Pause()
	}
	if move.Line != "" {
		d.logLine(op, move.Line)
	}
	if err := d.acceptMove(op, move.Cause); err != nil || move.Effect != decide.Start {
		return err
	}
	return d.requeue(op)
}

// acceptManualRetry restarts an operation whose marker a person moved to queued, or moves the marker back if a retry is
// refused.
func (d *Daemon) acceptManualRetry(op *operation, to statefs.State) error {
	if _, err := acts.Check(nil, op.rec, op.state, statefs.Retry, statefs.Args{}); err != nil && op.rec.Lost() {
		d.refuse(op, statefs.Retry, err)
		return d.undoMove(op, to)
	}
	other, err := d.retryUnlessEqual(op, func() error {
		d.clearFailure(op.rec)
		return d.acceptMove(op, statefs.CauseRetry)
	})
	if other == nil || err != nil {
		return err
	}
	d.logLine(op, lineEqual(other.ID))
	return d.undoMove(op, to)
}

// undoMove moves a marker back after a rename that corresponds to no request.
func (d *Daemon) undoMove(op *operation, moved statefs.State) error {
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: this move is not a request", "id", op.id(), "from", op.state, "to", moved)
	return d.commit(op.id(), change{from: moved, to: op.state}, moveMarker)
}

// acceptMove takes over a marker that has been moved already. The reconcile makes it durable at its
// end.
func (d *Daemon) acceptMove(op *operation, cause statefs.Cause) error {
	to, err := op.apply(cause, d.owner.Now())
	if err != nil {
		return err
	}
	d.enterState(op, to)
	return nil
}
