package daemon

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// applyStepEnd records in a step how its run ended. It is called once per run, before the record is
// written.
func (d *Daemon) applyStepEnd(rec *statefs.Record, r *work.Run, cause statefs.Cause) {
	rec.Steps = steps.Clone(rec.Steps)
	at := steps.Find(rec.Steps, r.StepName())
	if at == nil {
		return
	}
	at.EndedAt, at.LogTo = new(r.Outcome().EndedAt(at.StartedAt, d.owner.Now())), logSize(r.LogPath())
	change, verdict := stepCauses[cause]
	if !verdict {
		change = steps.CauseCutOff
	}
	if change == steps.CauseDone {
		at.Outputs, at.ErrorCode, at.ErrorMessage = r.Report().Members(r.Step().Outputs), "", ""
	} else if rec.Error != nil {
		at.ErrorCode, at.ErrorMessage = rec.Error.Code, rec.Error.Message
	}
	if change != steps.CauseDone && rec.RedoFrom == r.Number()+1 {
		at.RedoFrom = rec.RedoFrom
	}
	if change == steps.CauseCutOff {
		at.ErrorCode, at.ErrorMessage = "", ""
	}
	if err := at.Apply(change); err != nil {
		d.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// stepCauses maps the cause of an operation's transition to that of its step; on any other cause
// the step is cut off.
var stepCauses = map[statefs.Cause]steps.Cause{
	statefs.CauseDone: steps.CauseDone, statefs.CauseRetryLater: steps.CauseRetryLater,
	statefs.CauseRescued:     steps.CauseRetryLater,
	statefs.CauseNeedsPerson: steps.CauseNeedsPerson,
}

// cutOffStep records that the current step of an operation is no longer running and has no result.
func cutOffStep(rec *statefs.Record, now time.Time) {
	at := rec.CurrentStep()
	if at == nil || at.Status != steps.Running {
		return
	}
	rec.Steps = steps.Clone(rec.Steps)
	at = rec.CurrentStep()
	at.EndedAt = &now
	_ = at.Apply(steps.CauseCutOff) // a running step can be cut off
}

// matchErrorPattern finds the first error pattern of the job that matches the output of the work,
// changes the error accordingly, and returns its class.
func matchErrorPattern(r *work.Run, rec *statefs.Record) catalog.Class {
	if r.Step() == nil {
		return ""
	}
	if rec.Error.Code == work.OutputMissing || rec.Error.Code == work.OutputTooLarge {
		return catalog.ClassManual
	}
	if len(r.Step().Errors) == 0 || finalCodes[rec.Error.Code] {
		return ""
	}
	pattern, line := r.Step().ErrorIn(append(r.LastLines(), rec.Error.Message))
	if pattern == nil {
		return ""
	}
	rec.Error = &statefs.Fault{Code: cmp.Or(pattern.Code, rec.Error.Code), Message: stream.Printable(strings.TrimSpace(line))}
	return pattern.Class
}

// needsPersonLine is the log line for a step that waits for a person; it names the possible
// commands.
func needsPersonLine(rec *statefs.Record, at *steps.Step) string {
	return fmt.Sprintf("  ERROR: step %s: %s. A person must act: mend it, then 'jobdir retry %s'; or 'jobdir skip %s', or 'jobdir cancel %s'.",
		at.Name, rec.Error.Message, rec.ID, rec.ID, rec.ID)
}

// applyStepStart records the start of the current step.
func (d *Daemon) applyStepStart(rec *statefs.Record, now time.Time) {
	rec.Steps = steps.Clone(rec.Steps)
	at := rec.CurrentStep()
	if at == nil {
		return
	}
	if at.ErrorCode != "" {
		at.Retries++
	}
	if at.Run == 0 || at.Run < rec.MainRun() { // a person went back to an earlier step
		rec.Attempts, rec.Warnings, rec.DiedAt, rec.Backoff, rec.RetryUntil = 0, 0, nil, 0, nil // per step
	}
	at.Begin(rec.Run, logSize(d.owner.LogPath(rec.ID)))
	at.StartedAt, at.EndedAt, at.ErrorCode, at.ErrorMessage, at.Reason = &now, nil, "", "", ""
	_ = at.Apply(steps.CauseStart) // passSkippedSteps has checked it
	if def, err := d.storedDefinition(rec); err == nil {
		rec.Phase = def.Phase(rec.Steps)
	}
	rec.Progress = progressNow(rec, statefs.Progress{At: now, Step: &statefs.StepProgress{Name: at.Name}})
}
