package daemon

import (
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// tryAgain is when an operation is looked at again after something failed that may mend itself, such as a full disk.
const tryAgain = time.Second

// look compares what exists of one operation with what the daemon knows, and acts. It is the only way in which anything
// happens to an operation, and there is never more than one for the same ID at a time.
func (d *Daemon) look(id statefs.ID, names statefs.Names) {
	defer d.drain.looked()
	d.guardLook(id, func() error {
		if err := d.unpark(id); err != nil {
			return err
		}
		d.runInside(id)
		sight, err := d.sight(id, names)
		if err != nil {
			return err
		}
		if len(sight.Odd) > 0 {
			d.strangers.uncounted.Store(true)
		}
		op := d.operation(id)
		if op == nil {
			err = d.adopt(id, sight)
			if op = d.operation(id); op == nil {
				d.doubts.note(id, len(sight.States) > 0)
				d.waiters.note(id, false)
				return err
			}
			op.note(sight)
			d.tell(op)
			if err != nil || len(sight.States) != 1 || sight.States[0] != op.state {
				d.looks.want(id) // what was seen is not what is there now
				return err
			}
			sight.Odd = nil // it was set aside
		}
		err = d.reconcile(op, sight)
		d.doubts.note(id, d.manages(id) && op.absence != absence{})
		d.admission.settle(op, d.manages(id))
		if op.state != statefs.Queued || !d.manages(id) {
			d.chains.free(id, op.rec.After)
		}
		d.tell(op)
		d.tellWaiting(op)
		if d.manages(id) {
			d.setAlarm(op)
		}
		if op.run == nil && op.left == nil {
			d.closeLog(op) // what only stands in line must not use up the open files
		}
		if err == nil && d.manages(id) {
			op.park()
		}
		return err
	})
}

// guardLook sorts the errors of a look: a disk that fails ends the daemon, a name that was moved meanwhile means looking again,
// and everything else is reported and tried again.
func (d *Daemon) guardLook(id statefs.ID, look func() error) {
	err := look()
	var sync *statefs.SyncError
	var gone *watch.GoneError
	var folder *statefs.FolderGoneError
	if !errors.Is(err, errMoved) {
		d.moves.over(id)
	}
	switch {
	case err == nil:
		d.troubles.worked(id)
	case errors.As(err, &sync), errors.As(err, &gone), errors.As(err, &folder), errors.Is(err, errEmptied), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS):
		d.fail(err)
	case errors.Is(err, errNotYet):
		d.lookWhenReady(id)
	case errors.Is(err, errMoved):
		if wait := d.moves.again(id); wait > 0 {
			d.looks.retry(id, wait)
		} else {
			d.looks.want(id)
		}
	default:
		d.counters.failedLooks.Add(1)
		d.troubles.failed(id, err, time.Now())
		if !d.stopping.Load() {
			d.looks.retry(id, tryAgain)
		}
	}
}

// lookWhenReady has an operation looked at when the daemon serves.
func (d *Daemon) lookWhenReady(id statefs.ID) {
	d.mu.Lock()
	d.whenReady = append(d.whenReady, id)
	d.mu.Unlock()
	if isClosed(d.ready) {
		d.looks.want(id)
	}
}

// lookAfter has an operation looked at after a while.
func (d *Daemon) lookAfter(id statefs.ID, wait time.Duration) {
	time.AfterFunc(wait, func() { d.looks.want(id) })
}

// errMoved says that a marker was renamed by somebody else between the look and the act.
var errMoved = errors.New("the marker was moved meanwhile")

// reconcile is a look at an operation that the daemon has in hand.
func (d *Daemon) reconcile(op *operation, sight statefs.Sight) error {
	if err := d.identify(op, sight); err != nil {
		return err
	}
	if err := d.finishSides(op); err != nil {
		return err
	}
	op.alignSides()
	if op.run != nil && op.run.ended() {
		err := d.finish(op)
		if err == nil && d.manages(op.id()) {
			err = d.beginSides(op)
			if len(sight.Asks)+len(op.taken) > 0 {
				d.looks.want(op.id()) // nothing else may happen to it now that would have its requests carried out
			}
		}
		if !errors.Is(err, errMoved) || d.stopping.Load() {
			return err
		}
		// Somebody moved or removed the marker just before: that comes first, and then the end again.
		if _, err := d.compareMarker(op, sight); err != nil {
			return err
		}
		return errMoved
	}
	if !op.unsaid.IsZero() {
		if err := d.sayBegunInTime(op, sight); err != nil {
			return err
		}
	}
	if d.stopping.Load() {
		if op.run != nil {
			d.endWork(op.run)
		}
		d.endSides(op, d.endWork)
		return nil
	}
	if op.cancelling != nil {
		if !op.working() {
			return d.finishAs(op, op.cancelCause) // it could not be written down before
		}
		return d.carryOut(op, sight.Asks) // only its end counts now
	}
	d.setAside(op, sight.Odd)
	there, err := d.compareMarker(op, sight)
	if err != nil || !there {
		return err
	}
	if err := d.carryOut(op, sight.Asks); err != nil {
		return err
	}
	op.alignSides()
	if op.pausing != nil && op.standsStill() {
		if err := d.settlePause(op); err != nil {
			return err
		}
	}
	if !d.manages(op.id()) {
		return nil
	}
	if err := d.conclude(op); err != nil {
		return err
	}
	if ended, err := d.expire(op); ended || err != nil {
		return err
	}
	if err := d.comeDue(op); err != nil {
		return err
	}
	if op.state == statefs.Queued && d.draining() {
		return nil // for the next daemon
	}
	if op.state == statefs.Queued {
		if waits, err := d.comesAfter(op); waits || err != nil {
			return err
		}
		if len(op.rec.Steps) > 0 {
			if elsewhere, err := d.stepAhead(op); err != nil {
				return err
			} else if elsewhere && d.manages(op.id()) {
				return d.beginSides(op)
			} else if elsewhere {
				return nil
			}
		}
		if !d.admission.enter(op) {
			return d.beginSides(op)
		}
		if err := d.begin(op); err != nil || !d.manages(op.id()) {
			return err
		}
		return d.beginSides(op)
	}
	if op.state == statefs.Trailing {
		return d.trailsOn(op)
	}
	if err := d.beginSides(op); err != nil {
		return err
	}
	if err := d.noteStall(op); err != nil {
		return err
	}
	return d.notePhase(op)
}

// compareMarker brings the marker and the daemon's knowledge together. It reports false when there is nothing more to do now.
func (d *Daemon) compareMarker(op *operation, sight statefs.Sight) (bool, error) {
	if len(sight.States) == 0 {
		return false, d.missing(op)
	}
	op.absence = absence{}
	op.displaced.Store(false)
	own := false
	for _, state := range sight.States {
		own = own || state == op.state
	}
	if own {
		return true, d.removeSecond(op, sight.States)
	}
	if len(sight.States) > 1 {
		return false, errMoved // our marker is on the move; look again
	}
	return true, d.handMove(op, sight.States[0])
}

// removeSecond removes markers that somebody made beside ours. A marker that is being renamed can be seen under both names, but
// only two files have two identities, or one identity and a link count of two.
func (d *Daemon) removeSecond(op *operation, states []statefs.State) error {
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
		if known := *op.marker.Load(); !ours.Same(known) && other.Same(known) {
			// Ours was moved, and somebody put another file in its place: the move is what counts.
			if err := d.owner.RemoveName(statefs.MarkerName(op.id(), op.state)); err != nil {
				return err
			}
			return errMoved
		}
		d.counters.putBack.Add(1)
		d.logger.Warn("second marker removed", "id", op.id(), "marker", state, "state", op.state)
		if err := d.owner.RemoveName(statefs.MarkerName(op.id(), state)); err != nil {
			return err
		}
	}
	return nil
}

// handMove takes a marker that somebody renamed: as the request it stands for, or it is put back.
func (d *Daemon) handMove(op *operation, to statefs.State) error {
	cause, ok := statefs.HandMove(op.state, to)
	if !ok || cause == statefs.CauseRelease && op.run != nil {
		return d.undoMove(op, to)
	}
	d.logger.Info("marker moved by hand", "id", op.id(), "from", op.state, "to", to)
	if cause == statefs.CausePause {
		return d.pausedByHand(op)
	}
	if cause == statefs.CauseResume {
		return d.resumedByHand(op)
	}
	if cause != statefs.CauseRetry {
		if cause == statefs.CauseRelease {
			d.say(op, lineResume)
		}
		return d.accept(op, cause)
	}
	other, err := d.again(op, func() error {
		d.forgive(op)
		return d.accept(op, cause)
	})
	if other == nil || err != nil {
		return err
	}
	d.say(op, lineEqual(other.ID))
	return d.undoMove(op, to)
}

// undoMove puts back a marker after a move that means nothing.
func (d *Daemon) undoMove(op *operation, moved statefs.State) error {
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: this move means nothing", "id", op.id(), "from", op.state, "to", moved)
	err := d.owner.Move(op.id(), moved, op.state)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	return err
}

// accept takes over a marker that has been moved already. The look makes it durable when it concludes.
func (d *Daemon) accept(op *operation, cause statefs.Cause) error {
	to, err := op.apply(cause, d.owner.Now())
	if err != nil {
		return err
	}
	d.entered(op, to)
	return nil
}

// entered notes the state that a marker has got. Requests that had their effect before belong to the past: carried out again
// after a crash, one of them would undo this.
func (d *Daemon) entered(op *operation, state statefs.State) {
	if waitsForPerson(op.state) != waitsForPerson(state) {
		defer d.waitingChanged() // for those that come after it
	}
	op.set(state)
	op.unsaved = true
	op.ending.stopDue = state == statefs.FailedManual
	if err := d.dropEffected(op); err != nil {
		d.logger.Warn("request not forgotten; it is tried again", "id", op.id(), "error", err)
	}
}

// move renames the marker of an operation by cause. The rename is the transition.
func (d *Daemon) move(op *operation, cause statefs.Cause) error {
	from := op.state
	to, err := statefs.Next(from, cause)
	if err != nil {
		return err
	}
	err = d.owner.Move(op.id(), from, to)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	return d.moved(op, cause)
}

// moved notes a rename that was made.
func (d *Daemon) moved(op *operation, cause statefs.Cause) error {
	from := op.state
	to, err := op.apply(cause, d.owner.Now())
	if err != nil {
		return err
	}
	d.counters.transitions.Add(1)
	d.logger.Info("transition", "id", op.id(), "from", from, "to", to, "cause", cause)
	d.entered(op, to)
	return nil
}

// durable syncs what was renamed, writes the record behind it, and forgets the requests that asked for it.
func (d *Daemon) durable(op *operation) error {
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	op.rec.Next = ""
	op.noteProgress()
	if err := d.numberStop(op); err != nil {
		return err
	}
	if err := d.saveStop(op, d.owner.WriteRecord(op.rec)); err != nil {
		return err
	}
	op.unsaved, op.unsaid = false, time.Time{}
	op.show()
	return d.dropEffected(op)
}
