package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// adopt reconciles an ID that the daemon does not manage: a new submission, an operation of an
// earlier daemon, a foreign operation, or a file without a meaning. isNew means that this process has just submitted
// it.
func (rc *reconciler) adopt(id statefs.ID, sight statefs.Observation) (isNew bool, err error) {
	_, starts := rc.admission.submitted.get(id)
	if len(sight.States) == 0 || rc.stopping.Load() && !starts {
		return false, nil // the sweep handles requests without a live operation
	}
	rec, isNew, recordErr := rc.owner.ReadPublished(id)
	return isNew, rc.adoptAs(id, sight, rec, recordErr)
}

// adoptAs is adopt for an operation with this record, or for the reason why it cannot be read.
func (rc *reconciler) adoptAs(id statefs.ID, sight statefs.Observation, rec *statefs.Record, recordErr error) error {
	// The sweep checks whether the program of a foreign marker is alive. A reconcile does not:
	// reading 100,000 of them would be too slow.
	foreign := func() (bool, error) { return false, nil }
	verdict := statefs.Interpret(sight.States, rec, recordErr, false, foreign)
	if damaged, has := rc.markers.damaged.get(id); has && verdict == statefs.Foreign { // its record was removed
		verdict, recordErr = statefs.Unreadable, damaged.err
	}
	rc.markers.setAsideObstacles(id, rec, sight.Irregular, verdict)
	switch verdict {
	case statefs.Agree:
		return rc.takeOverMoved(rec, sight.States[0])
	case statefs.RollForward:
		return rc.rollForward(rec, sight.States[0])
	case statefs.TwoMarkers:
		return rc.takeOver(rec, rc.owner.ChooseMarker(id, sight.States, rec))
	case statefs.FinishingOptional:
		return rc.takeOverTrailing(rec, sight.States)
	case statefs.Ended:
		return rc.removeEnded(rec, sight.States)
	case statefs.Unreadable:
		return rc.quarantineRecord(id, sight.States[0], recordErr)
	case statefs.LeaveAlone:
		return recordErr
	case statefs.Foreign, statefs.ForeignGone, statefs.Orphan, statefs.Missing, statefs.Nothing:
		// A foreign program manages its own files. The sweep removes the files of a dead one.
	}
	return nil
}

// activate reads the record of a managed operation if it is evicted, and returns the operation. If the record is
// damaged, removed or of a newer version, activate untracks the operation and returns nil: the reconcile then finds
// a marker that the daemon does not manage, and judges it as any other.
func (rc *reconciler) activate(op *operation) (*operation, error) {
	if op == nil || op.activeState != nil {
		return op, nil
	}
	id := op.id()
	rec, err := rc.owner.ReadRecord(id)
	if err == nil {
		op.activeState = newActiveState(rec)
		op.managed = true
		op.evicted.Store(false)
		return op, nil
	}
	if _, corrupt := errors.AsType[*statefs.CorruptError](err); !corrupt && !errors.Is(err, statefs.ErrNewerVersion) &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rc.logger.Error("the record of a waiting operation was damaged or removed by another program", "id", id, "error", err)
	rc.markers.damaged.set(id, damagedRecord{op.shown, err})
	op.activeState = newActiveState(statefs.UnknownRecord(id, rc.owner.Now()))
	rc.untrack(op)
	return nil, nil
}

// takeOverMoved takes over an operation whose marker may have been renamed while no daemon ran. It
// puts the marker back if the rename has no meaning.
func (rc *reconciler) takeOverMoved(rec *statefs.Record, marker statefs.State) error {
	meant := statefs.InterpretMarker(rec, marker)
	if meant != marker {
		rc.counters.putBack.Add(1)
		rc.logger.Warn("marker put back: this move is not a request", "id", rec.ID, "from", rec.Status, "to", marker)
		if err := rc.commit(rec.ID, change{from: marker, to: meant}, moveMarker); err != nil {
			return err
		}
	}
	return rc.takeOver(rec, meant)
}

// takeOver starts to manage an operation whose marker is in the given state.
func (rc *reconciler) takeOver(rec *statefs.Record, state statefs.State) error {
	marker, _, err := rc.owner.Identify(statefs.MarkerName(rec.ID, state))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	news := rc.publisher.isUnpublished(rec)
	if err := rc.starts.recoverStart(rec, state); err != nil {
		return err
	}
	op := newOperation(rec)
	if news {
		op.shown.LastTransition = 0
	}
	op.shown.Marker = marker // not in the table yet
	rc.setState(op, state)
	if _, starts := rc.admission.submitted.get(rec.ID); starts && state == statefs.Running {
		rc.track(op) // this reconcile begins its work
		return nil
	}
	adopted, err := rc.adoptWork(op)
	if err != nil {
		return err
	}
	if err := rc.optional.adoptOptionalSteps(op); err != nil {
		return err
	}
	found := seen{Observation: decide.Found{Recorded: rec.Status, Adopted: adopted}}
	if _, err := rc.decisions.ask(op, found); err != nil || op.state.Terminal() {
		return err // an error if the marker was moved concurrently; what was cut off may have ended
	}
	rc.recoverStop(op)
	if err := rc.expectBatch(rec); err != nil {
		return err
	}
	rc.track(op)
	return nil
}

// takeOverTrailing adopts a trailing operation.
func (rc *reconciler) takeOverTrailing(rec *statefs.Record, states []statefs.State) error {
	if err := rc.indexEnded(rec.ID); err != nil {
		return err
	}
	if len(states) > 1 {
		for _, state := range states {
			if state != statefs.Trailing {
				if err := rc.commit(rec.ID, change{from: state}, removeExtra); err != nil {
					return err
				}
			}
		}
		return errMoved
	}
	if states[0] != statefs.Trailing {
		if err := rc.commit(rec.ID, change{from: states[0], to: statefs.Trailing}, moveMarker); err != nil {
			return err
		}
	}
	marker, _, err := rc.owner.Identify(statefs.MarkerName(rec.ID, statefs.Trailing))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	op := newOperation(rec)
	op.shown.Marker = marker // not in the table yet
	rc.setState(op, statefs.Trailing)
	if err := rc.optional.adoptOptionalSteps(op); err != nil {
		return err
	}
	op.feed.end = rec.FinishedSeq
	rc.track(op)
	rc.live.End(op.id())
	rc.ends.releaseWaiters(op)
	return nil
}

// rollForward completes the rename that a crash interrupted.
func (rc *reconciler) rollForward(rec *statefs.Record, from statefs.State) error {
	if !rec.Next.Live() {
		return rc.takeOver(rec, from)
	}
	if err := rc.commit(rec.ID, change{from: from, to: rec.Next}, moveMarker); err != nil {
		return err
	}
	rc.logger.Info("transition of an earlier daemon completed", "id", rec.ID, "from", from, "to", rec.Next)
	if n := len(rec.Transitions); n > 0 && rec.Transitions[n-1].To == rec.Next {
		rc.publisher.publishTransition(rec, rec.Transitions[n-1])
	}
	return rc.takeOver(rec, rec.Next)
}

// recoverStop ensures that an operation which waits for a person is in the feed.
func (rc *reconciler) recoverStop(op *operation) {
	switch {
	case op.state != statefs.FailedManual:
	case op.rec.Status != statefs.FailedManual:
		// A crash interrupted the transition, or another process moved the marker. The record is
		// updated as well: otherwise the next start would number the stop again.
		if err := op.rec.Apply(op.rec.Status, statefs.CauseNeedsPerson, rc.owner.Now()); err != nil {
			op.rec.Status = statefs.FailedManual
		}
		op.feed.stopUnnumbered, op.unsaved = true, true
	case op.rec.NeedsPersonSeq == 0:
		op.feed.stopUnnumbered, op.unsaved = true, true
	default:
		rc.history.Stopped(op.rec, 0)
	}
}

// removeEnded removes the markers of an operation whose terminal record is written.
func (rc *reconciler) removeEnded(rec *statefs.Record, states []statefs.State) error {
	if err := rc.indexEnded(rec.ID); err != nil {
		return err
	}
	for _, state := range states {
		file := statefs.MarkerName(rec.ID, state)
		if owner := rc.markers.markerOwner(file, rec.ID); owner != nil {
			return rc.markers.returnMarker(owner, file)
		}
		if err := rc.commit(rec.ID, change{from: state}, removeMarker); err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	rc.logger.Info("marker of an ended operation removed", "id", rec.ID, "status", rec.Status)
	rc.enqueueChildren(rec.ID) // a child that was reconciled earlier still saw the marker
	return errors.Join(work.RemoveScratch(rc.owner.LogPath(rec.ID)),
		rc.owner.Output.RemoveEmptyLog(rec.ID, ""))
}

// quarantineRecord moves a record that cannot be decoded to corrupt/, writes a new one with what is
// still known, and leaves the operation to a person.
func (rc *reconciler) quarantineRecord(id statefs.ID, state statefs.State, reason error) error {
	if err := rc.owner.QuarantineRecord(id, reason.Error()); err != nil {
		return err
	}
	rec, err := rc.markers.rebuilt(id)
	if err != nil {
		return err
	}
	if damaged, has := rc.markers.damaged.get(id); has {
		damaged.shown.RestoreDetails(rec)
	}
	op := newOperation(rec)
	rc.setState(op, state)
	rec.Status = state
	if state != statefs.FailedManual {
		if err := rc.transition(op, statefs.CauseUnreadable); err != nil {
			return err
		}
	}
	rec.Reason = "record unreadable"
	rec.Error = &statefs.Fault{Code: string(statefs.CauseUnreadable), Message: reason.Error() +
		"; a retry begins the work anew, as the job is defined now"}
	if rec.Group == "" {
		rec.Error = &statefs.Fault{Code: statefs.CodeRecordLost, Message: reason.Error()}
	}
	rc.logger.Error("record unreadable: the operation waits for a person", "id", id, "error", reason)
	if err := rc.persist(op); err != nil {
		return err
	}
	rc.markers.damaged.take(id)
	if n := len(rec.Transitions); op.state != state {
		rc.publisher.publishTransition(rec, rec.Transitions[n-1])
	}
	return rc.takeOver(rec, op.state)
}

// mayHaveCommands reports whether an operation in a state may have commands of its last run that
// must continue or whose end is not recorded yet. If the record has a due time, the run has ended
// and its outcome is recorded.
func mayHaveCommands(rec *statefs.Record, state statefs.State) bool {
	if at := rec.CurrentStep(); len(rec.Steps) > 0 && (at == nil || at.Status != steps.Running) {
		return false // it is between two steps
	}
	return rec.DueAt == nil && (state == statefs.Running || state == statefs.Paused)
}

// adoptWork continues a run of an earlier daemon if a keeper still holds its command or an exit
// report exists. It writes no line into the operation's log, because nothing has changed for its
// readers.
func (rc *reconciler) adoptWork(op *operation) (goesOn bool, err error) {
	if rc.config.Keepers == nil || op.rec.Starts == 0 {
		return false, nil
	}
	var commands []work.Command
	waits := false
	if mayHaveCommands(op.rec, op.state) {
		commands = rc.starts.workHost.Remaining(op.id(), rc.starts.heldCommands[op.id()], runNumber(op.rec), "")
		waits = rc.starts.waitsForKeeper(rc.currentWork(op.rec))
	}
	if len(commands) == 0 && !waits {
		// An exit report found here belongs to a run that is over, or cannot be decoded.
		return false, statefs.RemoveExit(rc.owner.Dir(), statefs.ExitName(op.id(), ""))
	}
	def, params, err := rc.currentWork(op.rec)
	if err == nil && def.Work() == catalog.WorkHandler {
		err = errors.New("its job is a handler")
	}
	var r *work.Run
	if err == nil {
		_, err = rc.openLog(op, true)
	}
	if err == nil {
		r, err = rc.starts.newRun(op, def, params, currentStepName(op.rec), op.log, true, func() {}) // it has begun already
	}
	if isTransient(err) {
		rc.closeLog(op)
		return false, err // the command continues, and the next reconcile tries again
	}
	if err != nil {
		rc.logger.Error("ending a command of an earlier daemon: its run cannot continue", "id", op.id(), "error", err)
		work.EndCommands(commands...)
		return false, nil
	}
	r.Adopt(commands, waits, op.state == statefs.Paused)
	rc.logger.Info("work of an earlier daemon continues", "id", op.id(), "run", op.rec.Run, "commands", len(commands),
		"waits_for_keeper", waits)
	rc.starts.startRun(op, r)
	return true, nil
}
