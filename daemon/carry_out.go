package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

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
		decide.Drop:         func(op *operation, x seen, _ decide.Answer) error { return q.drop(op, x.request) },
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

// stopWork stops the work first, and renames the marker when it has stopped: paused means that no work is running.
func (dc *decisions) stopWork(op *operation, r *request, answer decide.Answer) error {
	op.run.Pause()
	dc.logLine(op, answer.Line)
	op.await(decide.StopWork, r, answer.Cause)
	op.syncOptionalPause()
	return dc.checkStopped(op)
}

// leaveWork stops the work with the daemon, or leaves it to its keeper.
func (dc *decisions) leaveWork(op *operation) error {
	if op.run != nil {
		op.run.Stop(dc.detaching.Load())
	}
	dc.ends.endOptionalSteps(op, func(r *work.Run) { r.Stop(dc.detaching.Load()) })
	return nil
}

// catchUpWithMarker records a transition that only the marker shows: the daemon died between moving
// the marker and writing the record, or a person moved the marker.
func (dc *decisions) catchUpWithMarker(op *operation, cause statefs.Cause) error {
	if err := op.rec.Apply(op.rec.Status, cause, dc.owner.Now()); err == nil {
		op.unsaved = true
	}
	return nil
}

// missingMarkerGrace is how long a marker must be missing, without any event of its operation,
// before its absence is believed. A rename by a person leaves it missing for microseconds. A folder
// that is being removed is gone completely by then.
const missingMarkerGrace = 250 * time.Millisecond

// confirmMissingMarker handles an operation whose marker was not found. Removing a marker cancels
// the operation, but a single observation is never enough. The marker must be missing for
// missingMarkerGrace without an event of the operation, the folder must be the same one, and the
// marker must exist under no other name.
func (dc *decisions) confirmMissingMarker(op *operation) error {
	if op.misplaced.Load() {
		_, err := dc.judge(op, seen{Observation: decide.MarkerGone{Found: decide.Misplaced}})
		return err
	}
	events := op.events.Load()
	if op.missing.since.IsZero() || op.missing.events != events || dc.markers.hasPendingEvent(op.id()) {
		op.missing = missingMarker{since: time.Now(), events: events}
	}
	if wait := missingMarkerGrace - time.Since(op.missing.since); wait > 0 {
		dc.reconcileQueue.enqueueAfter(op.id(), wait)
		return nil
	}
	if err := dc.markers.dir.Check(); err != nil {
		return err
	}
	// State observes again until jobs/ does not change during it, which also works without events.
	_, err := dc.owner.State(op.id())
	if err == nil {
		return errMoved
	}
	if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	file, place, err := dc.markers.findMarker(op)
	if err != nil {
		return err
	}
	_, err = dc.judge(op, seen{Observation: decide.MarkerGone{Found: place}, file: file})
	return err
}

// cancelMissing cancels an operation whose marker was removed.
func (dc *decisions) cancelMissing(op *operation, _ seen, answer decide.Answer) error {
	// The marker is recreated until the work has ended, so that ls(1) lists the active operation
	// and its followers see it end. A full disk may prevent that: then this is called again.
	if err := dc.markers.restoreMarker(op); err != nil {
		return err
	}
	dc.logger.Warn("marker removed manually, cancelling the operation", "id", op.id(), "state", op.state)
	if err := dc.ends.endWork(op, &request{TakenRequest: dc.requests.requestCancel(op)}, answer); err != nil {
		return err
	}
	return dc.checkEnded(op)
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

// advanceQueued advances the steps of a queued operation. It returns true if the operation no
// longer belongs in the queue: it is at a gate, all steps are done, or a step failed.
func (dc *decisions) advanceQueued(op *operation) (elsewhere bool, err error) {
	if len(op.rec.Steps) == 0 {
		return false, nil
	}
	def, params, err := dc.definition(op.rec)
	if err != nil {
		return false, nil //nolint:nilerr // its start fails too and reports the error
	}
	move, skipped, err := dc.starts.passSkippedSteps(op, def, params)
	if err != nil {
		return true, dc.starts.leaveStepToPerson(op, err, "manual")
	}
	if len(skipped) > 0 {
		noteMilestone(op.rec, def)
		if err := dc.persist(op); err != nil {
			return true, err
		}
		dc.starts.logSkipped(op, skipped)
	}
	answer, err := dc.ask(op, seen{Observation: decide.StepReached{Move: move}, ahead: stepAhead{def: def}})
	return answer.Effect != decide.None, err
}

// nextStep goes on after a step that is done. If the next step needs the same lane and limits it
// begins at once; otherwise the operation goes to the queue, to the gate or to its end.
func (dc *decisions) nextStep(op *operation) error {
	def, params, err := dc.definition(op.rec)
	if isTransient(err) {
		return err
	}
	lane, limits := op.rec.Lane, op.rec.Limits
	if ended := op.run.Step(); ended != nil {
		lane, limits = op.rec.LaneAndLimitsFor(steps.Find(op.rec.Steps, ended.Name))
	}
	var move steps.Move
	var skipped []string
	if err == nil {
		move, skipped, err = dc.starts.passSkippedSteps(op, def, params)
	}
	if err != nil {
		return dc.starts.leaveStepToPerson(op, err, "manual")
	}
	noteMilestone(op.rec, def)
	nextLane, nextLimits := op.rec.LaneAndLimits()
	reached := decide.StepReached{Move: move, Done: true, SamePlaces: nextLane == lane && equalSets(limits, nextLimits)}
	answer := decide.Decide(dc.snapshot(op), reached, dc.env(op))
	if answer.Effect != decide.BeginStep { // which logs them once its record is durable
		dc.starts.logSkipped(op, skipped)
	}
	return dc.carryOut(op, seen{ahead: stepAhead{def, params, skipped}}, answer)
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// trail runs the optional steps of a trailing operation, and ends it when there are no more.
func (dc *decisions) trail(op *operation) error {
	if err := dc.optional.beginOptionalSteps(op); err != nil {
		return err
	}
	optional := decide.OptionalSeen{Running: len(op.optionalSteps) > 0}
	if !optional.Running {
		def, err := dc.storedDefinition(op.rec)
		if isTransient(err) {
			return err
		}
		optional.Unfinished = err == nil && def.Graph().HasUnfinishedOptional(op.rec.Steps)
	}
	_, err := dc.judge(op, seen{Observation: optional})
	return err
}
