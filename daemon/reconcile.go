package daemon

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/watch"
)

// reconciler compares the files of one ID with what the daemon knows, and lets the other parts act on the difference.
type reconciler struct {
	*core
	publisher *publisher
	waits     *waits
	markers   *markers
	ends      *ends
	starts    *starts
	optional  *optional
	finisher  *finisher
	requests  *requests

	// failing tracks the operations whose reconcile currently fails.
	failing failingOperations
	// moves counts, for each ID, the consecutive reconciles that found the marker being moved.
	moves lockedMap[statefs.ID, int]
	// batchMu serializes the lookups of batches that another process submits.
	batchMu sync.Mutex
}

// retryInterval is the delay before an operation is reconciled again after an error that may go
// away, such as a full disk.
const retryInterval = time.Second

// reconcileID compares what exists on disk of one operation with what the daemon knows, and acts.
// Nothing else changes an operation, and at most one reconcile runs per ID.
func (rc *reconciler) reconcileID(id statefs.ID, names statefs.NameSet) {
	defer rc.checkDrained()
	if op := rc.operation(id); rc.markers.isKnown(op, names) {
		rc.admission.reconciled(id, op.standing, nil)
		return
	}
	rc.runReconcile(id, func() error {
		if err := rc.activate(id); err != nil {
			return err
		}
		rc.runCallbacks(id)
		sight, err := rc.markers.observe(id, names)
		if err != nil {
			return err
		}
		if len(sight.Irregular) > 0 {
			rc.markers.strayFiles.uncounted.Store(true)
		}
		op := rc.operation(id)
		if op == nil {
			err = rc.adopt(id, sight)
			if op = rc.operation(id); op == nil {
				rc.noteUnmanaged(id, sight, err)
				rc.waitFollowers.setWaiting(id, false)
				rc.admission.reconciled(id, decide.Outside, err)
				return err
			}
			op.noteObservation(sight)
			rc.publisher.publish(op)
			if err != nil || decide.Markers(op.state, sight.States) != decide.Kept {
				rc.reconcileQueue.enqueue(id) // the marker has changed since the observation
				return err
			}
			sight.Irregular = nil // adopt has moved these to corrupt/
		}
		err = rc.reconcile(op, sight)
		rc.noteCarriedOut(op)
		rc.settleRequests(op)
		if rc.manages(id) && op.missing != (missingMarker{}) {
			rc.unsettledIDs.set(id, "")
		} else {
			rc.unsettledIDs.take(id)
		}
		rc.admission.syncQueue(op, rc.manages(id))
		rc.admission.reconciled(id, op.standing, err)
		rc.publisher.publish(op)
		rc.waits.publishWaiting(op)
		if rc.manages(id) {
			rc.setAlarm(op)
		}
		if op.run == nil && op.finishedRun == nil {
			rc.closeLog(op) // an operation that only waits must not use up the open files
		}
		if err == nil && rc.manages(id) {
			op.evict()
		}
		return err
	})
}

// runReconcile handles the error of a reconcile: a failing disk ends the daemon, a marker that was
// moved during the reconcile means another reconcile, and any other error is reported and retried.
func (rc *reconciler) runReconcile(id statefs.ID, look func() error) {
	err := look()
	var sync *files.SyncError
	var gone *watch.GoneError
	var folder *statefs.FolderGoneError
	if !errors.Is(err, errMoved) {
		rc.moves.take(id)
	}
	switch {
	case err == nil:
		rc.failing.succeeded(id)
	case errors.As(err, &sync), errors.As(err, &gone), errors.As(err, &folder), errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.EROFS):
		rc.fail(err)
	case errors.Is(err, errNotReady):
		rc.reconcileQueue.enqueueAfter(id, retryInterval)
	case errors.Is(err, errMoved):
		if wait := moveDelay(rc.moves.update(id, func(n int) int { return n + 1 })); wait > 0 {
			rc.reconcileQueue.enqueueAfter(id, wait)
		} else {
			rc.reconcileQueue.enqueue(id)
		}
	default:
		rc.counters.failedReconciles.Add(1)
		rc.failing.failed(id, err, time.Now())
		if !rc.stopping.Load() {
			rc.reconcileQueue.enqueueAfter(id, retryInterval)
		}
	}
}

// noteUnmanaged notes what a reconcile found of an ID that the daemon does not manage after it.
func (rc *reconciler) noteUnmanaged(id statefs.ID, sight statefs.Observation, err error) {
	if err == nil && !rc.stopping.Load() {
		rc.live.Withdraw(id)
		rc.settleUnmanaged(id)
	}
	switch {
	case len(sight.States)+len(sight.Requests) == 0:
		rc.unsettledIDs.take(id)
	case len(sight.States) == 1 && err == nil && !rc.stopping.Load():
		rc.unsettledIDs.set(id, sight.States[0])
	default:
		rc.unsettledIDs.set(id, "") // it may be ours
	}
}

// errMoved means that another process renamed a marker between the observation and the action.
var errMoved = errors.New("another process moved the marker")

// reconcile reconciles an operation that the daemon manages.
func (rc *reconciler) reconcile(op *operation, sight statefs.Observation) error {
	if err := rc.markers.checkMarkerIdentity(op, sight); err != nil {
		return err
	}
	if err := rc.optional.finishOptionalSteps(op); err != nil {
		return err
	}
	op.syncOptionalPause()
	if op.run != nil && op.run.Ended() {
		return rc.recordWorkEnd(op, sight)
	}
	if !op.unrecordedStart.IsZero() {
		if err := rc.starts.recordStartIfDue(op, sight); err != nil {
			return err
		}
	}
	if rc.stopping.Load() {
		if op.run != nil {
			op.run.Stop(rc.detaching.Load())
		}
		rc.ends.endOptionalSteps(op, func(r *work.Run) { r.Stop(rc.detaching.Load()) })
		return nil
	}
	if op.awaiting[decide.EndWork] != nil {
		if op.working() {
			return rc.requests.handleRequests(op, sight.Requests) // only its end counts now
		}
		_, err := rc.ends.complete(op, decide.EndWork)
		return err
	}
	if live, err := rc.reconcileFiles(op, sight); !live || err != nil {
		return err
	}
	if ended, err := rc.ends.expire(op); ended || err != nil {
		return err
	}
	if err := rc.starts.queueIfDue(op); err != nil {
		return err
	}
	switch {
	case op.state == statefs.Queued && rc.draining():
		return nil // left to the next daemon
	case op.state == statefs.Queued:
		return rc.reconcileQueued(op)
	case op.state == statefs.Trailing:
		return rc.reconcileTrailing(op)
	}
	return rc.reconcileActive(op)
}

// recordWorkEnd records the end of work. If a person moved or removed the marker just before, it handles that first,
// and the next reconcile records the end.
func (rc *reconciler) recordWorkEnd(op *operation, sight statefs.Observation) error {
	err := rc.finisher.finish(op)
	if err == nil && rc.manages(op.id()) {
		err = rc.optional.beginOptionalSteps(op)
		if len(sight.Requests)+len(op.pendingRequests) > 0 || op.run == nil && len(op.awaiting) > 0 {
			rc.reconcileQueue.enqueue(op.id()) // nothing later in this call handles them
		}
	}
	if !errors.Is(err, errMoved) || rc.stopping.Load() {
		return err
	}
	if _, err := rc.compareMarker(op, sight); err != nil {
		return err
	}
	return errMoved
}

// reconcileFiles acts on the markers and the requests, and makes the changes durable. It returns false if nothing more
// can be done in this reconcile.
func (rc *reconciler) reconcileFiles(op *operation, sight statefs.Observation) (live bool, err error) {
	rc.markers.setAside(op, sight.Irregular)
	if there, err := rc.compareMarker(op, sight); err != nil || !there {
		return false, err
	}
	if err := rc.requests.handleRequests(op, sight.Requests); err != nil {
		return false, err
	}
	op.syncOptionalPause()
	if op.awaiting[decide.StopWork] != nil && op.isStopped() {
		if _, err := rc.ends.complete(op, decide.StopWork); err != nil {
			return false, err
		}
	}
	if !rc.manages(op.id()) {
		return false, nil
	}
	return true, rc.requests.commitReconcile(op)
}

// reconcileQueued starts a queued operation, unless it waits for its parents, a gate, or the queue.
func (rc *reconciler) reconcileQueued(op *operation) error {
	if waits, err := rc.starts.waitsForParents(op); waits || err != nil {
		return err
	}
	elsewhere := false
	if len(op.rec.Steps) > 0 {
		var err error
		if elsewhere, err = rc.starts.advanceQueued(op); err != nil {
			return err
		}
	}
	if !elsewhere && rc.admission.tryAdmit(op) {
		if err := rc.starts.startOperation(op); err != nil {
			return err
		}
	}
	if !rc.manages(op.id()) {
		return nil
	}
	return rc.optional.beginOptionalSteps(op)
}

// reconcileActive starts the optional steps that are ready, and records what the work reports.
func (rc *reconciler) reconcileActive(op *operation) error {
	if err := rc.optional.beginOptionalSteps(op); err != nil {
		return err
	}
	if err := rc.finisher.recordStall(op); err != nil {
		return err
	}
	return rc.finisher.recordPhase(op)
}

// compareMarker brings the marker and the daemon's knowledge into line. It returns false when
// nothing more can be done in this reconcile.
func (rc *reconciler) compareMarker(op *operation, sight statefs.Observation) (bool, error) {
	found := decide.Markers(op.state, sight.States)
	if found == decide.Missing {
		return false, rc.confirmMissingMarker(op)
	}
	op.missing = missingMarker{}
	op.misplaced.Store(false)
	switch found { //nolint:exhaustive // a kept marker needs nothing
	case decide.Extra:
		return true, rc.markers.removeDuplicateMarkers(op, sight.States)
	case decide.Moving:
		return false, errMoved
	case decide.Moved:
		return true, rc.acceptManualMove(op, sight.States[0])
	}
	return true, nil
}

// removeDuplicateMarkers removes markers that were created beside the daemon's own. A marker that
// is being renamed can be seen under both names. Two markers exist only if the names have different
// identities, or the same identity and a link count of two.
func (m *markers) removeDuplicateMarkers(op *operation, states []statefs.State) error {
	for _, state := range states {
		if state == op.state {
			continue
		}
		ours, _, err := m.owner.Identify(statefs.MarkerName(op.id(), op.state))
		if err != nil {
			return errMoved
		}
		other, names, err := m.owner.Identify(statefs.MarkerName(op.id(), state))
		if err != nil {
			continue
		}
		if ours.Same(other) && names < 2 {
			return errMoved
		}
		if known := op.shown.Marker; !ours.Same(known) && other.Same(known) {
			// The daemon's marker was moved and another file was put in its place: the move counts.
			if err := m.commit(op.id(), change{from: op.state}, removeExtra); err != nil {
				return err
			}
			return errMoved
		}
		m.counters.putBack.Add(1)
		m.logger.Warn("second marker removed", "id", op.id(), "marker", state, "state", op.state)
		if err := m.commit(op.id(), change{from: state}, removeExtra); err != nil {
			return err
		}
	}
	return nil
}

// acceptManualMove treats a marker that a person renamed as the request it corresponds to, or moves
// it back.
func (rc *reconciler) acceptManualMove(op *operation, to statefs.State) error {
	move := decide.MoveOf(rc.snapshot(op), to)
	if move.Effect == decide.Undo {
		return rc.markers.undoMove(op, to)
	}
	rc.logger.Info("marker moved manually", "id", op.id(), "from", op.state, "to", to)
	switch move.Effect { //nolint:exhaustive // the others need nothing more
	case decide.Retry:
		return rc.acceptManualRetry(op, to)
	case decide.WaitAgain:
		return rc.requests.returnToWaiting(op, move)
	case decide.StopWork:
		op.run.Pause()
	}
	if move.Line != "" {
		rc.logLine(op, move.Line)
	}
	if err := rc.acceptMove(op, move.Cause); err != nil || move.Effect != decide.Start {
		return err
	}
	return rc.starts.recordInterruption(op)
}

// acceptManualRetry restarts an operation whose marker a person moved to queued, or moves the marker back if a retry is
// refused.
func (rc *reconciler) acceptManualRetry(op *operation, to statefs.State) error {
	if _, err := acts.Check(nil, op.rec, op.state, statefs.Retry, statefs.Args{}); err != nil && op.rec.Lost() {
		rc.requests.refuse(op, statefs.Retry, err)
		return rc.markers.undoMove(op, to)
	}
	other, err := rc.requests.retryUnlessEqual(op, func() error {
		rc.requests.clearFailure(op.rec)
		return rc.acceptMove(op, statefs.CauseRetry)
	})
	if other == nil || err != nil {
		return err
	}
	rc.logLine(op, lineEqual(other.ID))
	return rc.markers.undoMove(op, to)
}

// undoMove moves a marker back after a rename that corresponds to no request.
func (m *markers) undoMove(op *operation, moved statefs.State) error {
	m.counters.putBack.Add(1)
	m.logger.Warn("marker put back: this move is not a request", "id", op.id(), "from", op.state, "to", moved)
	return m.commit(op.id(), change{from: moved, to: op.state}, moveMarker)
}

// acceptMove takes over a marker that has been moved already. The reconcile makes it durable at its
// end.
func (rc *reconciler) acceptMove(op *operation, cause statefs.Cause) error {
	if err := op.rec.Apply(op.state, cause, rc.owner.Now()); err != nil {
		return err
	}
	rc.enterState(op, op.rec.Status)
	return nil
}
