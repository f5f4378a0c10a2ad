package daemon

import (
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
)

const cutOffText = "the work was cut off because the daemon or the machine stopped"

// handleCutOff moves an operation whose work was cut off to the state that the restart rule and the
// crash limit of its job give. The record is durable before the marker moves, so that a crash in
// between counts the death once.
func (f *finisher) handleCutOff(op *operation) error {
	rec := op.rec
	cause := statefs.CauseRescued
	if def, _, err := f.currentWork(rec); err == nil { // without a definition the start fails and reports it
		now := f.owner.Now()
		a := f.judgeAttempt(decide.AttemptFailed{CutOff: true, Uncounted: op.wasPaused()}, def, runStartedAt(rec), now,
			&rec.Attempts, &rec.Backoff, &rec.DiedAt)
		if a.Counts {
			addFailedAttempt(rec, statefs.FailedAttempt{
				Run: runNumber(rec), Step: currentStepName(rec), Code: work.CodeCutOff,
				Message: f.optional.cutOffMessage(rec.ID, def, rec.CurrentStep(), cutOffText), At: now,
			})
			redoFailed(rec)
		}
		if cause = a.Cause; cause != statefs.CauseRescued {
			return f.giveUpCutOff(op, cause, def)
		}
	}
	cutOffStep(rec, f.owner.Now())
	row, err := statefs.TransitionFrom(op.state, cause)
	if err != nil {
		return err
	}
	row.Order = statefs.RecordFirst
	err = f.makeTransition(op, row)
	if files.DiskFull(err) { // with a full disk the operation can still be controlled
		op.rec.Rescues++
		row.Order = statefs.MarkerFirst
		return f.makeTransition(op, row)
	}
	return err
}

// wasPaused reports whether an operation was paused when the earlier daemon was gone: its work that
// was cut off had stopped before.
func (op *operation) wasPaused() bool {
	return op.state == statefs.Paused || op.rec.Status == statefs.Paused
}

// giveUpCutOff ends an operation whose work was cut off and does not begin again, or leaves it to a
// person.
func (f *finisher) giveUpCutOff(op *operation, cause statefs.Cause, def *catalog.Definition) error {
	message := cutOffText
	switch {
	case cause == statefs.CauseNeedsPerson:
		redoFailed(op.rec)
		op.rec.Reason = crashReason(f.config.crashLimitOf(def))
	case def.Restart() == catalog.RestartFail:
		message += ", and the job does not let it begin again"
	default:
		message += fmt.Sprintf(", and its attempts (%d) are used up", def.Retry.MaxAttempts)
	}
	return f.failCutOff(op, cause, f.optional.cutOffMessage(op.id(), def, op.rec.CurrentStep(), message))
}

// failCutOff ends an operation that must not begin again, or leaves it to a person.
func (f *finisher) failCutOff(op *operation, cause statefs.Cause, message string) error {
	op.rec.Error = &statefs.Fault{Code: work.CodeCutOff, Message: message}
	if op.rec.CurrentStep() != nil {
		reason := "manual"
		if cause == statefs.CauseNeedsPerson {
			reason = op.rec.Reason
		}
		return f.starts.leaveStepToPerson(op, &work.Error{Code: work.CodeCutOff, Err: errors.New(message)}, reason)
	}
	if cause == statefs.CauseNeedsPerson {
		f.logLine(op, crashLine(op.rec))
		if err := f.transition(op, cause); err != nil {
			return err
		}
		return f.starts.settleMove(op)
	}
	f.logLine(op, "  ERROR: "+message)
	return f.ends.finishAs(op, cause)
}

// cutOffMessage returns the error message of work that was cut off before this daemon began: text,
// and the last non-empty line of the command if there is one. at is its step, nil for none.
func (o *optional) cutOffMessage(id statefs.ID, def *catalog.Definition, at *steps.Step, text string) string {
	if def == nil || def.Work() != catalog.WorkRun {
		return text
	}
	path, from := o.owner.LogPath(id), int64(0)
	if at != nil {
		from = at.LogFrom
		if at.Log != "" {
			path = o.owner.StepLogPath(id, at.Name)
		}
	}
	return withLine(text, o.starts.workHost.LastLine(id, path, from))
}

// redoFailed makes the next run repeat the items that failed in the last one.
func redoFailed(rec *statefs.Record) {
	rec.RedoFrom = runNumber(rec) + 1
	if rec.CurrentStep() != nil {
		rec.Steps = steps.Clone(rec.Steps)
		rec.CurrentStep().RedoFrom = rec.RedoFrom
	}
}
