package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// adopt reconciles an ID that the daemon does not manage: a new submission, an operation of an
// earlier daemon, a foreign operation, or a file without a meaning.
func (d *Daemon) adopt(id statefs.ID, sight statefs.Observation) error {
	if len(sight.States) == 0 || d.stopping.Load() {
		return nil // the sweep handles requests without a live operation
	}
	rec, recordErr := d.owner.ReadPublished(id)
	// The sweep checks whether the program of a foreign marker is alive. A reconcile does not:
	// reading 100,000 of them would be too slow.
	foreign := func() (bool, error) { return false, nil }
	verdict := statefs.Interpret(sight.States, rec, recordErr, false, foreign)
	if damaged := d.damagedRecord(id); damaged != nil && verdict == statefs.Foreign { // its record was removed
		verdict, recordErr = statefs.Unreadable, damaged.err
	}
	d.setAsideObstacles(id, rec, sight.Irregular, verdict)
	switch verdict {
	case statefs.Agree:
		return d.takeOverMoved(rec, sight.States[0])
	case statefs.RollForward:
		return d.rollForward(rec, sight.States[0])
	case statefs.TwoMarkers:
		return d.takeOver(rec, d.owner.ChooseMarker(id, sight.States, rec))
	case statefs.FinishingOptional:
		return d.takeOverTrailing(rec, sight.States)
	case statefs.Ended:
		return d.removeEnded(rec, sight.States)
	case statefs.Unreadable:
		return d.quarantineRecord(id, sight.States[0], recordErr)
	case statefs.LeaveAlone:
		return recordErr
	case statefs.Foreign, statefs.ForeignGone, statefs.Orphan, statefs.Missing, statefs.Nothing:
		// A foreign program manages its own files. The sweep removes the files of a dead one.
	}
	return nil
}

// setAsideObstacles sets aside the files that block an operation which is about to be taken over.
// It leaves the files of foreign programs alone.
func (d *Daemon) setAsideObstacles(id statefs.ID, rec *statefs.Record, odd []string, verdict statefs.Verdict) {
	if len(odd) == 0 {
		return
	}
	switch verdict {
	case statefs.Agree, statefs.RollForward, statefs.TwoMarkers, statefs.Unreadable:
		if rec == nil {
			rec = statefs.UnknownRecord(id, d.owner.Now())
		}
		op := newOperation(rec)
		d.setAside(op, odd)
		d.closeLog(op)
	case statefs.Ended, statefs.FinishingOptional, statefs.Foreign, statefs.ForeignGone, statefs.Orphan, statefs.Missing,
		statefs.LeaveAlone, statefs.Nothing:
	}
}

// takeOverMoved takes over an operation whose marker may have been renamed while no daemon ran. It
// puts the marker back if the rename has no meaning.
func (d *Daemon) takeOverMoved(rec *statefs.Record, marker statefs.State) error {
	meant := statefs.InterpretMarker(rec, marker)
	if meant != marker {
		d.counters.putBack.Add(1)
		d.logger.Warn("marker put back: this move is not a request", "id", rec.ID, "from", rec.Status, "to", marker)
		if err := d.commit(rec.ID, change{from: marker, to: meant}, moveMarker); err != nil {
			return err
		}
	}
	return d.takeOver(rec, meant)
}

// takeOver starts to manage an operation whose marker is in the given state.
func (d *Daemon) takeOver(rec *statefs.Record, state statefs.State) error {
	marker, _, err := d.owner.Identify(statefs.MarkerName(rec.ID, state))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	news := d.isUnpublished(rec)
	if err := d.recoverStart(rec, state); err != nil {
		return err
	}
	op := newOperation(rec)
	if news {
		op.published = statefs.PastTransition{}
	}
	op.shown.Marker = marker // not in the table yet
	d.setState(op, state)
	adopted, err := d.adoptWork(op)
	if err != nil {
		return err
	}
	if err := d.adoptOptionalSteps(op); err != nil {
		return err
	}
	recorded := d.snapshot(op)
	recorded.State = rec.Status
	switch move := decide.MoveOf(recorded, state); {
	case move.Effect == decide.WaitAgain:
		d.setState(op, statefs.Paused)
		if err := d.returnToWaiting(op, move); err != nil { // the marker was moved concurrently
			return err
		}
	case state == statefs.Running && !adopted:
		// The work belonged to a daemon that is gone. The operation is not tracked until its marker
		// is back in the queue.
		if err := d.handleCutOff(op); err != nil || op.state == statefs.Failed {
			return err
		}
	default:
		op.catchUpWithMarker(d.owner.Now())
	}
	d.recoverStop(op)
	if err := d.expectBatch(rec); err != nil {
		return err
	}
	d.track(op)
	d.admission.syncQueue(op, true)
	return nil
}

// requeue moves a running marker back to queued: it was renamed to running while no work runs.
func (d *Daemon) requeue(op *operation) error {
	cutOffStep(op.rec, d.owner.Now())
	if err := d.transition(op, statefs.CauseInterrupted); err != nil {
		return err
	}
	return d.persist(op)
}

// rollForward completes the rename that a crash interrupted.
func (d *Daemon) rollForward(rec *statefs.Record, from statefs.State) error {
	if !rec.Next.Live() {
		return d.takeOver(rec, from)
	}
	if err := d.commit(rec.ID, change{from: from, to: rec.Next}, moveMarker); err != nil {
		return err
	}
	d.logger.Info("transition of an earlier daemon completed", "id", rec.ID, "from", from, "to", rec.Next)
	if n := len(rec.Transitions); n > 0 && rec.Transitions[n-1].To == rec.Next {
		d.publishTransition(rec, rec.Transitions[n-1])
	}
	return d.takeOver(rec, rec.Next)
}

// removeEnded removes the markers of an operation whose terminal record is written.
func (d *Daemon) removeEnded(rec *statefs.Record, states []statefs.State) error {
	if err := d.indexEnded(rec.ID); err != nil {
		return err
	}
	for _, state := range states {
		file := statefs.MarkerName(rec.ID, state)
		if owner := d.markerOwner(file, rec.ID); owner != nil {
			return d.returnMarker(owner, file)
		}
		if err := d.commit(rec.ID, change{from: state}, removeMarker); err != nil {
			return err
		}
	}
	d.logger.Info("marker of an ended operation removed", "id", rec.ID, "status", rec.Status)
	d.enqueueChildren(rec.ID) // a child that was reconciled earlier still saw the marker
	return errors.Join(files.RemoveFolder(work.ScratchFolder(d.owner.LogPath(rec.ID))),
		d.owner.Output.RemoveEmptyLog(rec.ID, ""))
}

// quarantineRecord moves a record that cannot be decoded to corrupt/, writes a new one with what is
// still known, and leaves the operation to a person.
func (d *Daemon) quarantineRecord(id statefs.ID, state statefs.State, reason error) error {
	if err := d.owner.QuarantineRecord(id, reason.Error()); err != nil {
		return err
	}
	rec, err := d.rebuilt(id)
	if err != nil {
		return err
	}
	if damaged := d.damagedRecord(id); damaged != nil {
		damaged.shown.RestoreDetails(rec)
	}
	op := newOperation(rec)
	d.setState(op, state)
	rec.Status = state
	if state != statefs.FailedManual {
		if err := d.transition(op, statefs.CauseUnreadable); err != nil {
			return err
		}
	}
	rec.Reason = "record unreadable"
	rec.Error = &statefs.Fault{Code: string(statefs.CauseUnreadable), Message: reason.Error() +
		"; a retry begins the work anew, as the job is defined now"}
	if rec.Group == "" {
		rec.Error = &statefs.Fault{Code: statefs.CodeRecordLost, Message: reason.Error()}
	}
	d.logger.Error("record unreadable: the operation waits for a person", "id", id, "error", reason)
	if err := d.persist(op); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.damaged, id)
	d.mu.Unlock()
	d.publish(op)
	return d.takeOver(rec, op.state)
}

// damagedRecord is what is known of an operation whose record was damaged or removed while it
// waited.
type damagedRecord struct {
	shown *live.Snapshot
	err   error
}

// damagedRecord returns what is known of the damaged record of id, or nil if it is not damaged.
func (d *Daemon) damagedRecord(id statefs.ID) *damagedRecord {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if damaged, known := d.damaged[id]; known {
		return &damaged
	}
	return nil
}

// rebuilt creates a record from what the daemon remembers of an operation: its job, its parameters
// and its submit time. If one of these is missing or does not fit, the record contains only the ID.
func (d *Daemon) rebuilt(id statefs.ID) (*statefs.Record, error) {
	unknown := statefs.UnknownRecord(id, d.owner.Now())
	damaged := d.damagedRecord(id)
	if damaged == nil {
		return unknown, nil
	}
	row, err := damaged.shown.Row.Unpack()
	if err != nil || row.ParamsCut {
		return unknown, nil //nolint:nilerr // without parameters, only the ID is known
	}
	def := d.config.Catalog.Get(row.Group, row.Job)
	if def == nil {
		return unknown, nil
	}
	params, err := def.BindRecorded([]byte(row.Params))
	if err != nil {
		return unknown, nil //nolint:nilerr // the job was changed, and these parameters do not fit
	}
	s, err := submit.Build(def, params, submit.Options{Key: &row.Key}, d.owner.Now())
	if err != nil {
		return unknown, nil //nolint:nilerr // the job was changed, and no operation can be built from it
	}
	s.Tags = row.Tags
	if s.Steps == nil { // otherwise the row holds the lane of a step
		s.Lane = row.Lane
	}
	return d.owner.Rebuild(id, s, row.Created)
}
