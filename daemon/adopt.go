package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/statefs"
)

// adopt is a look at an ID that the daemon does not have in hand: a new submission, an operation of an earlier daemon, one of a
// foreign program, or a file that means nothing.
func (d *Daemon) adopt(id statefs.ID, sight statefs.Sight) error {
	if len(sight.States) == 0 || d.stopping.Load() {
		return nil // requests without a live operation are the sweeper's
	}
	rec, recordErr := d.owner.Published(id)
	gone := func() (bool, error) {
		return d.owner.ForeignGone(id, statefs.MarkerName(id, sight.States[0]))
	}
	verdict := statefs.Judge(sight.States, rec, recordErr, false, gone)
	d.clearWay(id, rec, sight.Odd, verdict)
	switch verdict {
	case statefs.Agree:
		return d.takeOverMeant(rec, sight.States[0])
	case statefs.RollForward:
		return d.rollForward(rec, sight.States[0])
	case statefs.TwoMarkers:
		return d.takeOver(rec, d.owner.Surviving(id, sight.States, rec))
	case statefs.Trails:
		return d.takeOverTrailing(rec, sight.States)
	case statefs.Ended:
		return d.removeEnded(rec, sight.States)
	case statefs.Unreadable:
		return d.unreadable(id, sight.States[0], recordErr)
	case statefs.LeaveAlone:
		return recordErr
	case statefs.Foreign, statefs.ForeignGone, statefs.Orphan, statefs.Missing, statefs.Nothing:
		// A foreign program minds its own files; what is left of a dead one is the sweeper's.
	}
	return nil
}

// clearWay sets aside what stands in the way of an operation that is about to be taken over. What foreign programs have is theirs.
func (d *Daemon) clearWay(id statefs.ID, rec *statefs.Record, odd []string, verdict statefs.Verdict) {
	if len(odd) == 0 {
		return
	}
	switch verdict {
	case statefs.Agree, statefs.RollForward, statefs.TwoMarkers, statefs.Unreadable:
		if rec == nil {
			rec = statefs.Unknown(id, d.owner.Now())
		}
		op := newOperation(rec)
		d.setAside(op, odd)
		d.closeLog(op)
	case statefs.Ended, statefs.Trails, statefs.Foreign, statefs.ForeignGone, statefs.Orphan, statefs.Missing, statefs.LeaveAlone, statefs.Nothing:
	}
}

// takeOverMeant takes an operation in hand whose marker somebody may have moved while no daemon ran.
func (d *Daemon) takeOverMeant(rec *statefs.Record, marker statefs.State) error {
	meant := statefs.Meant(rec, marker)
	if meant != marker {
		d.counters.putBack.Add(1)
		d.logger.Warn("marker put back: this move means nothing", "id", rec.ID, "from", rec.Status, "to", marker)
		err := d.owner.Move(rec.ID, marker, meant)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			return errMoved
		}
		if err != nil {
			return err
		}
	}
	return d.takeOver(rec, meant)
}

// takeOver takes an operation in hand whose marker is in the given state.
func (d *Daemon) takeOver(rec *statefs.Record, state statefs.State) error {
	marker, _, err := d.owner.Identify(statefs.MarkerName(rec.ID, state))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	news := d.isNews(rec)
	if err := d.takeOverBegun(rec, state); err != nil {
		return err
	}
	op := newOperation(rec)
	if news {
		op.told = statefs.Transited{}
	}
	op.marker.Store(&marker)
	op.set(state)
	adopted, err := d.adoptWork(op)
	if err != nil {
		return err
	}
	if err := d.adoptSides(op); err != nil {
		return err
	}
	held := d.heldUntilDue(op)
	switch {
	case state == statefs.Running && !adopted && rec.Status == statefs.Paused && held != statefs.CauseRelease:
		op.set(statefs.Paused)
		if err := d.waitAgain(op, held); err != nil { // somebody moved the marker meanwhile
			return err
		}
	case state == statefs.Running && !adopted:
		// The work belonged to a daemon that is gone. Until the marker is back in the queue nothing of it is in hand.
		if err := d.lost(op); err != nil || op.state == statefs.Failed {
			return err
		}
	default:
		op.catchUp(d.owner.Now())
	}
	d.takeOverStop(op)
	d.keep(op)
	d.admission.settle(op, true)
	return nil
}

// requeue corrects a marker that somebody moved to running although there is no work in hand.
func (d *Daemon) requeue(op *operation) error {
	cutOff(op.rec, d.owner.Now())
	if err := d.move(op, statefs.CauseInterrupted); err != nil {
		return err
	}
	return d.durable(op)
}

// rollForward carries out the rename that a crash cut off.
func (d *Daemon) rollForward(rec *statefs.Record, from statefs.State) error {
	if !rec.Next.Live() {
		return d.takeOver(rec, from)
	}
	err := d.owner.Move(rec.ID, from, rec.Next)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	d.logger.Info("transition of an earlier daemon carried out", "id", rec.ID, "from", from, "to", rec.Next)
	if n := len(rec.Transitions); n > 0 && rec.Transitions[n-1].To == rec.Next {
		d.tellOne(rec, rec.Transitions[n-1])
	}
	return d.takeOver(rec, rec.Next)
}

// removeEnded removes the markers of an operation whose terminal record was written.
func (d *Daemon) removeEnded(rec *statefs.Record, states []statefs.State) error {
	if err := d.enterEnded(rec.ID); err != nil {
		return err
	}
	for _, state := range states {
		file := statefs.MarkerName(rec.ID, state)
		if owner := d.holder(file, rec.ID); owner != nil {
			return d.giveBack(owner, file)
		}
		if err := d.owner.RemoveMarker(rec.ID, state); err != nil {
			return err
		}
	}
	d.logger.Info("marker of an ended operation removed", "id", rec.ID, "status", rec.Status)
	d.wakeChildren(rec.ID) // those that were looked at before found the marker
	return scratchOf(d.owner.LogPath(rec.ID)).remove()
}

// unreadable keeps an operation whose record cannot be understood for a person: the record goes to corrupt/, and a new one says
// what is still known.
func (d *Daemon) unreadable(id statefs.ID, state statefs.State, reason error) error {
	if err := d.owner.QuarantineRecord(id, reason.Error()); err != nil {
		return err
	}
	now := d.owner.Now()
	rec := statefs.Unknown(id, now)
	op := newOperation(rec)
	op.set(state)
	rec.Status = state
	if state != statefs.FailedManual {
		if err := d.move(op, statefs.CauseUnreadable); err != nil {
			return err
		}
	}
	rec.Reason = "record unreadable"
	rec.Error = &statefs.Fault{Code: "record_unreadable", Message: reason.Error()}
	d.logger.Error("record unreadable: the operation waits for a person", "id", id, "error", reason)
	if err := d.durable(op); err != nil {
		return err
	}
	d.tell(op)
	return d.takeOver(rec, op.state)
}
