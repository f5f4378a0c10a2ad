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
	decisions *decisions

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
	if rc.markers.isKnown(id, names) {
		rc.admission.reconciled(id, nil)
		return
	}
	defer rc.admission.admit() // also if it ends early
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
				rc.admission.reconciled(id, err)
				return err
			}
			op.noteObservation(sight)
			if err != nil || !op.hasOnlyMarker(sight) {
				rc.reconcileQueue.enqueue(id) // the marker has changed since the observation
				return err
			}
			sight.Irregular = nil // adopt has moved these to corrupt/
		}
		kept := op.hasOnlyMarker(sight)
		if err = rc.decisions.reconcile(op, sight); !kept {
			rc.filesChanged(id) // the marker may be back where it was
		}
		rc.noteCarriedOut(op)
		rc.settleRequests(op)
		if rc.manages(id) && op.missing != (missingMarker{}) {
			rc.unsettledIDs.set(id, "")
		} else {
			rc.unsettledIDs.take(id)
		}
		if rc.manages(id) {
			rc.settlePlace(op, err)
		}
		rc.admission.reconciled(id, err)
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
	rc.filesChanged(id)
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

// decisions observes an operation, asks package decide what that means, and carries the answer out.
type decisions struct {
	*core
	markers  *markers
	ends     *ends
	starts   *starts
	optional *optional
	finisher *finisher
	requests *requests
	effects  map[decide.Effect]carrier
}

// seen is an observation of an operation, with what only its effect needs.
type seen struct {
	decide.Observation
	request  *request         // of Requested
	requests []statefs.Action // of WorkSeen: the requests that exist
	file     string           // of MarkerGone: the name under which the marker was found
	ahead    stepAhead        // of StepReached
	fault    *statefs.Fault   // of LimitExpired
	parent   *statefs.Record  // of ParentSeen
}

// view is what a reconcile observes of one part of an operation, and has judged. It returns true if nothing more can
// be done in this reconcile.
type view func(dc *decisions, op *operation, sight statefs.Observation) (last bool, err error)

// views are the views of a reconcile in their order. An end is recorded before anything else counts, and a start
// before anything else happens to the operation. A daemon that stops changes nothing more. An operation whose end is
// requested has only its end ahead. The marker comes before the requests, because it has the state that a request
// meets. Time counts after what people want, and only what nothing of this has moved goes on by itself.
var views = []view{
	(*decisions).viewEnd, (*decisions).viewUnrecordedStart, (*decisions).viewStop, (*decisions).viewEnding,
	(*decisions).viewMarkers, (*decisions).viewRequests, (*decisions).viewLimits, (*decisions).viewDue,
	(*decisions).viewUndisturbed,
}

// reconcile reconciles an operation that the daemon manages.
func (dc *decisions) reconcile(op *operation, sight statefs.Observation) error {
	if err := dc.markers.checkMarkerIdentity(op, sight); err != nil {
		return err
	}
	if err := dc.optional.finishOptionalSteps(op); err != nil {
		return err
	}
	op.syncOptionalPause()
	for _, view := range views {
		if last, err := view(dc, op, sight); last || err != nil {
			return err
		}
	}
	return nil
}

// judge carries out what an observation means for an operation. It returns true if nothing more can be done in this
// reconcile.
func (dc *decisions) judge(op *operation, x seen) (last bool, err error) {
	answer, err := dc.ask(op, x)
	return answer.Last() || !dc.manages(op.id()), err
}

func (dc *decisions) ask(op *operation, x seen) (decide.Answer, error) {
	answer := decide.Decide(dc.snapshot(op), x.Observation, dc.env(op))
	return answer, dc.carryOut(op, x, answer)
}

// env returns what else a decision reads.
func (c *core) env(op *operation) decide.Env {
	e := decide.Env{Draining: c.draining(), Stopping: c.stopping.Load()}
	if op.run != nil {
		e.Restart = op.run.Def().Restart()
	}
	return e
}

// carryOut carries out an answer.
func (dc *decisions) carryOut(op *operation, x seen, answer decide.Answer) error {
	if carry := dc.effects[answer.Effect]; carry != nil {
		return carry(op, x, answer)
	}
	return nil
}

func (dc *decisions) viewEnd(op *operation, sight statefs.Observation) (last bool, err error) {
	if op.run == nil || !op.run.Ended() {
		return false, nil
	}
	return true, dc.recordWorkEnd(op, sight)
}

// recordWorkEnd records the end of work. If a person moved or removed the marker just before, it handles that first,
// and the next reconcile records the end.
func (dc *decisions) recordWorkEnd(op *operation, sight statefs.Observation) error {
	err := dc.finish(op)
	if err == nil && dc.manages(op.id()) {
		err = dc.optional.beginOptionalSteps(op)
		if len(sight.Requests)+len(op.pendingRequests) > 0 || op.run == nil && len(op.awaiting) > 0 {
			dc.reconcileQueue.enqueue(op.id()) // nothing later in this call handles them
		}
	}
	if !errors.Is(err, errMoved) || dc.stopping.Load() {
		return err
	}
	if _, err := dc.viewMarkers(op, sight); err != nil {
		return err
	}
	return errMoved
}

// finish records how a run ended. It is called again after a full disk.
func (dc *decisions) finish(op *operation) error {
	if err := op.run.DiskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if op.endCause == "" {
		if last, err := dc.judge(op, seen{Observation: endOf(op.run)}); last || err != nil {
			return err
		}
	}
	_, err := dc.judge(op, seen{Observation: decide.EndNoted{Cause: op.endCause, Step: op.run.Step() != nil}})
	return err
}

func (dc *decisions) viewUnrecordedStart(op *operation, sight statefs.Observation) (last bool, err error) {
	if !op.unrecordedStart.IsZero() {
		err = dc.starts.recordStartIfDue(op, sight)
	}
	return false, err
}

func (dc *decisions) viewStop(op *operation, _ statefs.Observation) (last bool, err error) {
	if !dc.stopping.Load() {
		return false, nil
	}
	return dc.judge(op, seen{Observation: decide.DaemonStops{}})
}

func (dc *decisions) viewEnding(op *operation, sight statefs.Observation) (last bool, err error) {
	if op.awaiting[decide.EndWork] == nil {
		return false, nil
	}
	_, err = dc.judge(op, seen{Observation: op.workSeen(false), requests: sight.Requests})
	return true, err
}

func (op *operation) workSeen(stopped bool) decide.WorkSeen {
	return decide.WorkSeen{Stopped: stopped, Optional: len(op.optionalSteps) > 0}
}

func (dc *decisions) viewMarkers(op *operation, sight statefs.Observation) (last bool, err error) {
	dc.markers.setAside(op, sight.Irregular)
	if len(sight.States) > 0 {
		op.missing = missingMarker{}
		op.misplaced.Store(false)
	}
	return dc.judge(op, seen{Observation: decide.MarkersSeen{States: sight.States}})
}

// viewRequests sees the requests, then whether a pause has stopped the work, and makes durable what this reconcile has
// changed so far.
func (dc *decisions) viewRequests(op *operation, sight statefs.Observation) (last bool, err error) {
	if err := dc.takeRequests(op, sight.Requests); err != nil {
		return true, err
	}
	op.syncOptionalPause()
	if err := dc.checkStopped(op); err != nil || !dc.manages(op.id()) {
		return true, err
	}
	return false, dc.requests.commitReconcile(op)
}

func (dc *decisions) takeRequests(op *operation, asks []statefs.Action) error {
	return dc.requests.handleRequests(op, asks, func(x seen) error {
		if _, err := dc.judge(op, x); err != nil {
			return err
		}
		return dc.checkEnded(op)
	})
}

// checkStopped completes an awaited pause if all work has stopped.
func (dc *decisions) checkStopped(op *operation) (err error) {
	if op.awaiting[decide.StopWork] != nil && op.isStopped() {
		_, err = dc.judge(op, seen{Observation: op.workSeen(true)})
	}
	return err
}

// checkEnded completes an awaited end if no work is left.
func (dc *decisions) checkEnded(op *operation) (err error) {
	if op.awaiting[decide.EndWork] != nil && !op.working() {
		_, err = dc.judge(op, seen{Observation: op.workSeen(false)})
	}
	return err
}

func (dc *decisions) viewLimits(op *operation, _ statefs.Observation) (last bool, err error) {
	expired, fault := dc.ends.expiredLimit(op)
	if fault == nil {
		return false, nil
	}
	return dc.judge(op, seen{Observation: expired, fault: fault})
}

func (dc *decisions) viewDue(op *operation, _ statefs.Observation) (last bool, err error) {
	if !dc.starts.isDue(op) {
		return false, nil
	}
	return dc.judge(op, seen{Observation: decide.TimeCame{}})
}

func (dc *decisions) viewUndisturbed(op *operation, _ statefs.Observation) (last bool, err error) {
	return dc.judge(op, seen{Observation: decide.Undisturbed{}})
}

// tryStart starts a queued operation, unless it waits for its parents, a gate, or the queue.
func (dc *decisions) tryStart(op *operation) error {
	if last, err := dc.viewParents(op); last || err != nil {
		return err
	}
	elsewhere, err := dc.advanceQueued(op)
	if err != nil {
		return err
	}
	if !elsewhere && dc.admission.tryAdmit(&dc.operations, op) {
		if _, err := dc.judge(op, seen{Observation: decide.Admitted{}}); err != nil {
			return err
		}
	}
	if !dc.manages(op.id()) {
		return nil
	}
	return dc.optional.beginOptionalSteps(op)
}

// followWork starts the optional steps that are ready, and records what the work reports.
func (dc *decisions) followWork(op *operation) error {
	if err := dc.optional.beginOptionalSteps(op); err != nil {
		return err
	}
	if op.run == nil {
		return nil
	}
	if stalled := op.run.Stalled(); stalled != (op.rec.StalledAt != nil) {
		ends := op.run.Def().OnStall != ""
		if _, err := dc.judge(op, seen{Observation: decide.StallChanged{Stalled: stalled, Ends: ends}}); err != nil {
			return err
		}
	}
	return dc.finisher.recordPhase(op)
}

// carrier carries out an answer to an observation.
type carrier func(op *operation, x seen, answer decide.Answer) error

func only(do func(*operation) error) carrier {
	return func(op *operation, _ seen, _ decide.Answer) error { return do(op) }
}

func byCause(do func(*operation, statefs.Cause) error) carrier {
	return func(op *operation, _ seen, answer decide.Answer) error { return do(op, answer.Cause) }
}

func byAnswer(do func(*operation, decide.Answer) error) carrier {
	return func(op *operation, _ seen, answer decide.Answer) error { return do(op, answer) }
}

func ofRequest(do func(*operation, *request, decide.Answer) error) carrier {
	return func(op *operation, x seen, answer decide.Answer) error { return do(op, x.request, answer) }
}

// makeEffects returns what carries each effect out. An effect that is not in it does nothing.
func (dc *decisions) makeEffects() map[decide.Effect]carrier {
	m, q, e, s, f := dc.markers, dc.requests, dc.ends, dc.starts, dc.finisher
	return map[decide.Effect]carrier{
		decide.Confirm:      only(dc.confirmMissingMarker),
		decide.ObserveAgain: only(func(*operation) error { return errMoved }),
		decide.RemoveExtra:  m.removeDuplicateMarkers,
		decide.Undo:         m.undoMove,
		decide.PutBack:      m.undoRename,
		decide.Restore:      only(m.restoreMisplaced),
		decide.Cancel:       dc.cancelMissing,
		decide.Accept:       dc.acceptMove,
		decide.AcceptStop:   dc.acceptMove,
		decide.AcceptStart:  dc.acceptMove,
		decide.AcceptRetry:  dc.acceptMove,
		decide.WaitAgain:    dc.acceptMove,
		decide.CatchUp:      byCause(dc.catchUpWithMarker),
		decide.CutOff:       only(f.handleCutOff),

		decide.Ignore:       ofRequest(q.ignoreRequest),
		decide.Drop:         ofRequest(q.dropRequest),
		decide.Transition:   ofRequest(q.transitionFor),
		decide.StopWork:     ofRequest(dc.stopWork),
		decide.Continue:     ofRequest(q.takePauseBack),
		decide.EndWork:      ofRequest(e.endWork),
		decide.KillWork:     ofRequest(e.endWork),
		decide.Prioritize:   ofRequest(q.prioritize),
		decide.Retry:        ofRequest(q.retry),
		decide.Step:         ofRequest(q.handleStepRequest),
		decide.TakeRequests: func(op *operation, x seen, _ decide.Answer) error { return dc.takeRequests(op, x.requests) },

		decide.Complete:      byAnswer(e.complete),
		decide.Finish:        byCause(e.finishAs),
		decide.Detach:        only(e.detachOperation),
		decide.Interrupt:     byCause(f.finishInterrupted),
		decide.GiveUp:        byCause(f.giveUpInterrupted),
		decide.NoteEnd:       byAnswer(f.noteEnd),
		decide.CancelStalled: byAnswer(f.noteStalledEnd),
		decide.NoteFailure:   only(f.noteFailedEnd),
		decide.GoOn:          byCause(f.goOn),
		decide.StayPaused:    byCause(f.stayPaused),

		decide.NextStep:     only(dc.nextStep),
		decide.BeginStep:    s.beginNextStep,
		decide.QueueStep:    byCause(f.leaveRun),
		decide.CompleteStep: byAnswer(f.completeStep),
		decide.FinishSteps:  s.finishRequiredSteps,
		decide.Gate:         only(s.awaitApproval),

		decide.EndExpired:     e.endExpired,
		decide.Expire:         e.expire,
		decide.Due:            byCause(dc.transitionDurably),
		decide.TryStart:       only(dc.tryStart),
		decide.Begin:          only(s.startOperation),
		decide.LeaveToPerson:  s.parentFailed,
		decide.Trail:          only(dc.trail),
		decide.FinishOptional: byCause(e.endTrailing),
		decide.FollowWork:     only(dc.followWork),
		decide.NoteStall:      only(f.recordStall),
		decide.EndStalled:     only(f.endStalled),
		decide.LeaveWork:      only(dc.leaveWork),
	}
}

func (dc *decisions) stopWork(op *operation, r *request, answer decide.Answer) error {
	dc.requests.stopWork(op, r, answer)
	return dc.checkStopped(op)
}

// markers returns the markers of a MarkersSeen.
func (x seen) markers() []statefs.State {
	o, _ := x.Observation.(decide.MarkersSeen)
	return o.States
}

// leaveWork stops the work with the daemon, or leaves it to its keeper.
func (dc *decisions) leaveWork(op *operation) error {
	if op.run != nil {
		op.run.Stop(dc.detaching.Load())
	}
	dc.ends.endOptionalSteps(op, func(r *work.Run) { r.Stop(dc.detaching.Load()) })
	return nil
}

// removeDuplicateMarkers removes markers that were created beside the daemon's own. A marker that
// is being renamed can be seen under both names. Two markers exist only if the names have different
// identities, or the same identity and a link count of two.
func (m *markers) removeDuplicateMarkers(op *operation, x seen, _ decide.Answer) error {
	for _, state := range x.markers() {
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

// acceptMove takes over a marker that a person has moved already, as the transition that the move requests. The
// reconcile makes it durable at its end.
func (dc *decisions) acceptMove(op *operation, x seen, answer decide.Answer) error {
	if to := x.markers(); len(to) > 0 { // not at a start
		dc.logger.Info("marker moved manually", "id", op.id(), "from", op.state, "to", to[0])
	}
	switch answer.Effect { //nolint:exhaustive // the others need nothing more
	case decide.AcceptRetry:
		return dc.acceptRetry(op, x, answer)
	case decide.WaitAgain:
		return dc.requests.returnToWaiting(op, answer)
	case decide.AcceptStop:
		op.run.Pause()
	}
	if answer.Line != "" {
		dc.logLine(op, answer.Line)
	}
	if err := dc.takeOverMove(op, answer.Cause); err != nil || answer.Effect != decide.AcceptStart {
		return err
	}
	return dc.starts.recordInterruption(op)
}

func (dc *decisions) takeOverMove(op *operation, cause statefs.Cause) error {
	if err := op.rec.Apply(op.state, cause, dc.owner.Now()); err != nil {
		return err
	}
	dc.enterState(op, op.rec.Status)
	return nil
}

// acceptRetry restarts an operation whose marker a person moved to queued, or moves the marker back if a retry is
// refused.
func (dc *decisions) acceptRetry(op *operation, x seen, answer decide.Answer) error {
	if _, err := acts.Check(nil, op.rec, op.state, statefs.Retry, statefs.Args{}); err != nil && op.rec.Lost() {
		dc.requests.refuse(op, statefs.Retry, err)
		return dc.markers.undoMove(op, x, answer)
	}
	other, err := dc.requests.retryUnlessEqual(op, func() error {
		dc.requests.clearFailure(op.rec)
		return dc.takeOverMove(op, answer.Cause)
	})
	if other == nil || err != nil {
		return err
	}
	dc.logLine(op, lineEqual(other.ID))
	return dc.markers.undoMove(op, x, answer)
}

// undoMove moves a marker back after a rename that corresponds to no request.
func (m *markers) undoMove(op *operation, x seen, _ decide.Answer) error {
	moved := x.markers()[0]
	m.counters.putBack.Add(1)
	m.logger.Warn("marker put back: this move is not a request", "id", op.id(), "from", op.state, "to", moved)
	return m.commit(op.id(), change{from: moved, to: op.state}, moveMarker)
}
