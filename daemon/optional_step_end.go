package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// finishOptionalSteps records the ends of optional steps.
func (d *Daemon) finishOptionalSteps(op *operation) error {
	for name, s := range op.optionalSteps {
		if !s.run.Ended() {
			continue
		}
		if err := d.finishOptionalStep(op, name, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) finishOptionalStep(op *operation, name string, s *optionalStep) error {
	if err := s.run.DiskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if !s.run.Detached() {
		rec := *op.rec
		rec.Steps = steps.Clone(rec.Steps)
		at := steps.Find(rec.Steps, name)
		d.classifyOptionalEnd(&rec, at, s)
		rec.Resources = s.run.Resources(rec.Resources)
		if err := d.saveOptionalSteps(op, &rec); err != nil {
			return err
		}
		if err := errors.Join(s.run.Forget(), d.owner.Output.RemoveEmptyLog(op.id(), name)); err != nil {
			d.logger.Warn("files of a step are left", "id", op.id(), "step", name, "error", err)
		}
		d.logger.Info("optional step ended", "id", op.id(), "step", name, "status", at.Status, "error", at.ErrorCode)
		if at.Status == steps.FailedManual {
			d.logLine(op, fmt.Sprintf("  Optional step %s failed: %s. The operation goes on without it; "+
				"'jobdir retry %s --step %s' tries it again.", name, stream.Printable(at.ErrorMessage), op.id(), name))
		}
	}
	delete(op.optionalSteps, name)
	d.admission.releaseStep(op, name)
	if err := s.log.Close(); err != nil {
		d.logger.Error("log not closed", "id", op.id(), "step", name, "error", err)
	}
	return nil
}

// classifyOptionalEnd sets the status of an optional step from the end of its run.
func (d *Daemon) classifyOptionalEnd(rec *statefs.Record, at *steps.Step, s *optionalStep) {
	r := s.run
	at.EndedAt, at.LogTo = new(r.Outcome().EndedAt(at.StartedAt, d.owner.Now())), logSize(r.LogPath())
	err := r.Outcome().Err
	if cause := r.EndCause(); cause != nil && !r.Outcome().EndedByItself() {
		err = cause
	}
	partial, err := r.Failure(err)
	change := steps.CauseDone
	switch {
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrInterrupted), errors.Is(err, work.ErrDetached):
		change = steps.CauseCutOff
	case err != nil:
		change = d.failOptionalStep(rec, at, s, err, partial)
	}
	if change == steps.CauseDone {
		at.Outputs, at.Attempts, at.DiedAt, at.Backoff = r.Report().Members(r.Step().Outputs), 0, nil, 0
	}
	if err := at.Apply(change); err != nil {
		d.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// failOptionalStep records a failed attempt of an optional step, and returns the cause of the
// step's next transition.
func (d *Daemon) failOptionalStep(rec *statefs.Record, at *steps.Step, s *optionalStep, failure error,
	partial bool,
) steps.Cause {
	r := s.run
	view := statefs.Record{ID: rec.ID, Steps: rec.Steps, Error: fault(failure)}
	if exit := r.Outcome().Exit; exit != nil && exit.Code >= 0 {
		view.ExitCode = &exit.Code
	}
	uncounted := r.CutOffWhilePaused(view.Error.Code) // classOf may change the code
	class := classOf(r, &view, failure)
	a := attemptOutcome{code: view.Error.Code, class: class, partial: partial, uncounted: uncounted}
	d.noteOptionalAttempt(at, r.Def(), &a, *at.EndedAt)
	if a.nextCause() == statefs.CauseDone {
		return steps.CauseDone
	}
	why := d.addLastLine(r, rec, view.Error, fault(failure), r.LastLine())
	at.ErrorCode, at.ErrorMessage = why.Code, why.Message
	switch {
	case a.crashed():
		at.ErrorMessage += "; " + crashText(d.crashLimitOf(r.Def()))
		return steps.CauseNeedsPerson
	case a.nextCause() != statefs.CauseRescued:
		return steps.CauseNeedsPerson
	case !a.isAttempt() && class != catalog.ClassWarn:
		at.ErrorCode, at.ErrorMessage = "", ""
		return steps.CauseCutOff
	}
	at.Backoff++
	due := d.owner.Now().Add(retryDelay(r, failure, class, at.Backoff))
	at.DueAt = &due
	return steps.CauseRetryLater
}

// noteOptionalAttempt records in an optional step that its run failed or was cut off, and completes
// the outcome of the attempt.
func (d *Daemon) noteOptionalAttempt(at *steps.Step, def *catalog.Definition, a *attemptOutcome, ended time.Time) {
	limit := d.crashLimitOf(def)
	a.restart, a.maxAttempts = def.Restart(), def.Retry.MaxAttempts
	if at.StartedAt != nil && ended.Sub(*at.StartedAt) > limit.Within {
		at.Backoff = 0
	}
	at.DiedAt = a.addDeath(at.DiedAt, ended, limit)
	if a.isAttempt() {
		at.Attempts++
	}
	a.attempts = at.Attempts
	if (a.isAttempt() || a.class == catalog.ClassWarn) && a.nextCause() != statefs.CauseDone {
		at.RedoFrom = at.Run + 1
	}
}
