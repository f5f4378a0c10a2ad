package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// An operation has ended when its required steps are done: the record is terminal with trailing
// set, the index holds it, and waiting clients get the result. Its marker is trailing until the
// last optional step has ended.
//
//	record: completed, trailing ─▶ sync ─▶ index ─▶ rename to ID.trailing ─▶ ...
//	... ─▶ record: all done ─▶ sync ─▶ remove the marker
//
// The record is written first, so after a crash it decides what happens to the marker (statefs.FinishingOptional).

// finishRequiredSteps ends an operation whose required steps are done.
func (d *Daemon) finishRequiredSteps(op *operation, def *catalog.Definition) error {
	noteMilestone(op.rec, def)
	op.rec.Reason, op.rec.Error = "", nil
	if len(op.optionalSteps) > 0 || def.Graph().HasUnfinishedOptional(op.rec.Steps) {
		return d.finishAs(op, statefs.CauseMainDone)
	}
	return d.finishAs(op, statefs.CauseDone)
}

// beginTrailing makes an end durable while optional steps continue.
func (d *Daemon) beginTrailing(op *operation, rec *statefs.Record) error {
	from := op.state
	if err := d.recordEnd(op, rec); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endCause, op.unsaved = rec, nil, "", false
	d.counters.finished.Add(1)
	d.logger.Info("finished; optional steps continue", "id", rec.ID, "result", rec.Result, "from", from)
	d.setState(op, statefs.Trailing)
	d.repeatPause(op)
	d.releaseWaiters(op)
	d.closeLog(op)
	d.publish(op)
	d.reconcileQueue.enqueue(op.id())
	if ended != nil {
		return errors.Join(d.dropDoneRequests(op), ended.Forget())
	}
	return d.dropDoneRequests(op)
}

// reconcileTrailing reconciles a trailing operation: it ends when no optional step is running or
// will be.
func (d *Daemon) reconcileTrailing(op *operation) error {
	if err := d.beginOptionalSteps(op); err != nil {
		return err
	}
	if len(op.optionalSteps) > 0 {
		return nil
	}
	def, err := d.storedDefinition(op.rec)
	if isTransient(err) {
		return err
	}
	if err == nil && def.Graph().HasUnfinishedOptional(op.rec.Steps) {
		return nil // an optional step is retried later
	}
	return d.endTrailing(op, statefs.CauseAllDone)
}

// endTrailing ends a trailing operation.
func (d *Daemon) endTrailing(op *operation, cause statefs.Cause) error {
	rec := *op.rec
	if err := decide.EndTrailing(&rec, cause, d.owner.Now()); err != nil {
		return err
	}
	if len(rec.Artifacts) == 0 {
		rec.Artifacts = work.ListArtifacts(d.owner.ArtifactsPath(op.id()))
	}
	if err := d.commit(op.id(), change{rec: &rec, from: op.state}, writeEnd, removeMarker); err != nil {
		return err
	}
	op.rec = &rec
	op.state = rec.Status
	d.logger.Info("optional steps ended", "id", rec.ID, "cause", cause)
	d.untrack(op)
	d.publish(op)
	return d.cleanUp(op)
}

// takeOverTrailing adopts a trailing operation.
func (d *Daemon) takeOverTrailing(rec *statefs.Record, states []statefs.State) error {
	if err := d.indexEnded(rec.ID); err != nil {
		return err
	}
	if len(states) > 1 {
		for _, state := range states {
			if state != statefs.Trailing {
				if err := d.commit(rec.ID, change{from: state}, removeExtra); err != nil {
					return err
				}
			}
		}
		return errMoved
	}
	if states[0] != statefs.Trailing {
		if err := d.commit(rec.ID, change{from: states[0], to: statefs.Trailing}, moveMarker); err != nil {
			return err
		}
	}
	marker, _, err := d.owner.Identify(statefs.MarkerName(rec.ID, statefs.Trailing))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	op := newOperation(rec)
	op.shown.Marker = marker // not in the table yet
	d.setState(op, statefs.Trailing)
	if err := d.adoptOptionalSteps(op); err != nil {
		return err
	}
	op.feed.end = rec.FinishedSeq
	d.track(op)
	d.live.End(op.id())
	d.releaseWaiters(op)
	d.admission.syncQueue(op, true)
	return nil
}

// releaseWaiters lets equal submits start a new operation, and enqueues the operations that wait
// for this one.
func (d *Daemon) releaseWaiters(op *operation) {
	if d.config.Intake != nil {
		d.config.Intake.Forget(op.rec)
	}
	d.enqueueChildren(op.id())
}
