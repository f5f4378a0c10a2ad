package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// An operation whose required steps are done has its end: the record is terminal and says that it trails, the index has it, and whoever waits for it
// is told. Its marker is trailing until the last optional step has ended.
//
//	record: completed, trailing ─▶ sync ─▶ index ─▶ rename to ID.trailing ─▶ ... ─▶ record: all done ─▶ sync ─▶ remove the marker
//
// The record comes first, so a marker that a crash left behind is put right by it (statefs.Trails).

// mainDone ends the main chain of an operation.
func (d *Daemon) mainDone(op *operation, def *catalog.Definition) error {
	reached(op.rec, def)
	op.rec.Reason, op.rec.Error = "", nil
	if len(op.sides) > 0 || def.Graph().Trails(op.rec.Steps) {
		return d.finishAs(op, statefs.CauseMainDone)
	}
	return d.finishAs(op, statefs.CauseDone)
}

// trail makes an end durable whose optional steps go on.
func (d *Daemon) trail(op *operation, rec *statefs.Record) error {
	if err := d.enter(op, rec); err != nil {
		return err
	}
	from := op.state
	err := d.owner.Move(op.id(), from, statefs.Trailing)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endedBy, op.unsaved = rec, nil, "", false
	d.counters.finished.Add(1)
	d.logger.Info("finished, and optional steps go on", "id", rec.ID, "result", rec.Result, "from", from)
	if ended != nil {
		ended.commands.taken()
	}
	op.set(statefs.Trailing)
	d.pauseAnew(op)
	d.released(op)
	d.closeLog(op)
	d.tell(op)
	d.looks.want(op.id())
	if ended != nil {
		return errors.Join(d.dropEffected(op), ended.scratch.remove())
	}
	return d.dropEffected(op)
}

// trailsOn is what a look does about an operation that trails: it ends when no optional step is at work or will be.
func (d *Daemon) trailsOn(op *operation) error {
	if err := d.beginSides(op); err != nil {
		return err
	}
	if len(op.sides) > 0 {
		return nil
	}
	def, err := d.keptDefinition(op.rec)
	if mends(err) {
		return err
	}
	if err == nil && def.Graph().Trails(op.rec.Steps) {
		return nil // one is tried again later
	}
	return d.allDone(op, statefs.CauseAllDone)
}

// allDone ends the trailing of an operation.
func (d *Daemon) allDone(op *operation, cause statefs.Cause) error {
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	for i := range rec.Steps {
		if s := &rec.Steps[i]; s.Optional && (s.Status == steps.FailedRetryable || s.Status == steps.Running) {
			_ = s.Apply(steps.CauseCutOff) // it was to be tried again, or nobody has it in hand
			s.DueAt = nil
		}
	}
	if err := rec.Apply(statefs.Trailing, cause, d.owner.Now()); err != nil {
		return err
	}
	rec.Trailing, rec.Next = false, ""
	if len(rec.Artifacts) == 0 {
		rec.Artifacts = artifactsIn(d.owner.ArtifactsPath(op.id()))
	}
	if err := d.owner.WriteEnd(&rec); err != nil {
		return err
	}
	if err := d.owner.RemoveMarker(op.id(), op.state); err != nil {
		return err
	}
	op.rec = &rec
	op.state = rec.Status
	d.logger.Info("optional steps ended", "id", rec.ID, "cause", cause)
	d.forget(op)
	d.tell(op)
	return d.tidy(op)
}

// takeOverTrailing takes an operation in hand that trails.
func (d *Daemon) takeOverTrailing(rec *statefs.Record, states []statefs.State) error {
	if err := d.enterEnded(rec.ID); err != nil {
		return err
	}
	if len(states) > 1 {
		for _, state := range states {
			if state != statefs.Trailing {
				if err := d.owner.RemoveName(statefs.MarkerName(rec.ID, state)); err != nil {
					return err
				}
			}
		}
		return errMoved
	}
	if states[0] != statefs.Trailing {
		err := d.owner.Move(rec.ID, states[0], statefs.Trailing)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			return errMoved
		}
		if err != nil {
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
	op.marker.Store(&marker)
	op.set(statefs.Trailing)
	if err := d.adoptSides(op); err != nil {
		return err
	}
	op.ending.number = rec.FinishedSeq
	d.keep(op)
	op.ends()
	d.released(op)
	d.admission.settle(op, true)
	return nil
}

// released lets go those who wait for the end of an operation.
func (d *Daemon) released(op *operation) {
	if d.config.Intake != nil {
		d.config.Intake.Forget(op.rec)
	}
	d.wakeChildren(op.id())
}
