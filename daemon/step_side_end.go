package daemon

import (
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// finishSides writes down how optional steps have ended.
func (d *Daemon) finishSides(op *operation) error {
	for name, s := range op.sides {
		if !s.run.ended() {
			continue
		}
		if err := d.finishSide(op, name, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) finishSide(op *operation, name string, s *side) error {
	if err := s.run.diskFailed(); err != nil {
		return err // which ends the daemon: the disk fails, and not the work
	}
	if !s.run.left.Load() {
		rec := *op.rec
		rec.Steps = steps.Clone(rec.Steps)
		at := steps.Find(rec.Steps, name)
		d.judgeSide(&rec, at, s)
		if s.run.exit != nil {
			s.run.used.add(*s.run.exit)
		}
		rec.Resources = s.run.used.onto(rec.Resources)
		if err := d.saveSides(op, &rec); err != nil {
			return err
		}
		s.run.commands.taken()
		if err := s.run.scratch.remove(); err != nil {
			d.logger.Warn("the folder of a step is left", "id", op.id(), "step", name, "error", err)
		}
		d.logger.Info("optional step ended", "id", op.id(), "step", name, "status", at.Status, "error", at.ErrorCode)
		if at.Status == steps.FailedManual {
			d.say(op, fmt.Sprintf("  Optional step %s failed: %s. The operation goes on without it.", name, printable(at.ErrorMessage)))
		}
	}
	delete(op.sides, name)
	d.admission.leaveSide(op, name)
	if err := s.log.Close(); err != nil {
		d.logger.Error("log not closed", "id", op.id(), "step", name, "error", err)
	}
	return nil
}

// judgeSide says what the end of its run makes of an optional step.
func (d *Daemon) judgeSide(rec *statefs.Record, at *steps.Step, s *side) {
	r, now := s.run, d.owner.Now()
	at.EndedAt, at.LogTo = &now, logSize(r.logPath())
	if r.exit != nil && r.exit.At.After(*at.StartedAt) && r.exit.At.Before(now) {
		at.EndedAt = &r.exit.At
	}
	err, cause := r.err, r.endCause()
	if cause != nil && !r.endedByItself() {
		err = cause
	}
	if err == nil {
		err = r.failedItems()
	}
	if err == nil {
		err = r.missingOutput()
	}
	change := steps.CauseDone
	switch {
	case err == nil:
		at.Outputs, at.Attempts, at.Deaths = r.outputsOf(r.step.def), 0, 0
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrInterrupted), errors.Is(err, errLeft):
		change = steps.CauseCutOff
	default:
		change = d.failedSide(rec, at, s, err)
	}
	if err := at.Apply(change); err != nil {
		d.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// failedSide notes a failed attempt of an optional step, and says whether it is tried again.
func (d *Daemon) failedSide(rec *statefs.Record, at *steps.Step, s *side, failure error) steps.Cause {
	r := s.run
	view := statefs.Record{ID: rec.ID, Steps: rec.Steps, Error: fault(failure)}
	if r.exit != nil && r.exit.Code >= 0 {
		view.ExitCode = &r.exit.Code
	}
	class := r.classOf(&view, failure)
	at.ErrorCode, at.ErrorMessage, at.RedoFrom = view.Error.Code, view.Error.Message, r.number+1
	at.Deaths = r.deathsAfter(at.Deaths, view.Error.Code, class)
	if class != catalog.ClassWarn {
		at.Attempts++
	}
	a := attempted{
		code: view.Error.Code, class: class, asked: r.askedWait(failure) > 0,
		attempts: at.Attempts, most: r.def.Retry.MaxAttempts, deaths: at.Deaths,
	}
	if a.after() != statefs.CauseRescued {
		return steps.CauseNeedsPerson
	}
	due := d.owner.Now().Add(r.waitAfter(failure, class, at.Attempts))
	at.DueAt = &due
	return steps.CauseRetryLater
}
