package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// A required step is a run of its operation (docs/adr/0019). The code for steps is in these files:
//
//	steps.go          conditions, and the begin of a step: its run, or a gate that waits for a person
//	finish.go         what the end of a run means for its step
//	carry_out.go      what follows a step: the next one, the queue, a gate, the end
//	step_actions.go   requests by people: retry, skip, set, approve, reject
//	optional_step.go  optional steps, which run beside and after the others

// noteMilestone sets the phase of an operation to the milestone that its steps have reached, also
// in its progress.
func noteMilestone(rec *statefs.Record, def *catalog.Definition) {
	phase := def.Phase(rec.Steps)
	if phase == statefs.FirstPhase && rec.FinishedAt != nil {
		return // the phase is that of the end
	}
	rec.Phase = phase
	if rec.Progress != nil && rec.Progress.Phase != rec.Phase {
		progress := *rec.Progress
		progress.Phase = rec.Phase
		rec.Progress = &progress
	}
}

// stepLine is the log line with which a step begins.
func stepLine(rec *statefs.Record, at *steps.Step) string {
	line := fmt.Sprintf("== step %d / %d %s", stepNumber(rec.Steps, at.Name), len(rec.Steps), at.Name)
	if at.Retries > 0 {
		line += fmt.Sprintf(" (retry %d)", at.Retries)
	}
	return line
}

// logSize returns the size of a log, or 0 if it cannot be read.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // the log does not exist yet
	}
	return info.Size()
}

// passSkippedSteps applies the conditions of steps until a step is to be started or approved, or all
// are done. Steps whose condition does not hold become skipped; their names are returned.
func (s *starts) passSkippedSteps(op *operation, def *catalog.Definition, params catalog.Params) (move steps.Move,
	skipped []string, err error,
) {
	list := op.rec.Steps
	for {
		move, name := def.Graph().NextRequired(list)
		at := steps.Find(list, name)
		switch {
		case move == steps.Wait && at.Status == steps.FailedRetryable:
			return steps.Start, skipped, nil // its time has come, otherwise the operation would not be queued
		case move == steps.Wait && at.Status == steps.Running:
			err = at.Apply(steps.CauseCutOff)
		case move == steps.Wait:
			err = at.Apply(steps.CauseRetry)
		case move == steps.Over:
			return move, skipped, nil
		default:
			step := def.Step(name)
			if step == nil {
				return move, skipped, fmt.Errorf("job %s has no step %q", def.Address(), name)
			}
			holds, whenErr := step.Holds(catalog.Values{Params: params, ID: op.id().String(), Steps: list})
			if whenErr != nil {
				return move, skipped, &work.Error{
					Code: "when_failed",
					Err:  fmt.Errorf("when: %s", strings.TrimPrefix(whenErr.Error(), "when of step "+name+": ")),
				}
			}
			if holds {
				return move, skipped, nil
			}
			at.Reason, at.EndedAt = steps.ConditionNotMet+step.When, new(s.owner.Now())
			err = at.Apply(steps.CauseWhen)
			skipped = append(skipped, name)
		}
		if err != nil {
			return move, skipped, err
		}
	}
}

// logSkipped logs which steps are skipped.
func (s *starts) logSkipped(op *operation, names []string) {
	for _, name := range names {
		at := steps.Find(op.rec.Steps, name)
		s.logLine(op, fmt.Sprintf("%s: skipped, %s", stepLine(op.rec, at), at.Reason))
	}
}

// beginNextStep begins the next step with the lane and limits of the finished step.
//
// The order is: record with the end and the start, sync, work. So after a crash either the first
// step ran last, and its end is found again, or the second one may have started.
func (s *starts) beginNextStep(op *operation, x seen, _ decide.Answer) error {
	begun, err := s.fdBudget.reserve(s.owner.Descriptors.ForWork) // the operation holds its places
	if err != nil {
		return err
	}
	defer func() {
		if op.run == nil {
			begun()
		}
	}()
	op.copyProgress()
	rec := *op.rec
	s.applyStart(&rec, s.owner.Now())
	if err := s.commitRecord(op, &rec); err != nil {
		return err
	}
	ended := op.run
	op.run, op.endCause, op.unsaved = nil, "", false
	ended.Acknowledge()
	s.logSkipped(op, x.ahead.skipped)
	at := rec.CurrentStep()
	task, err := stepWork(x.ahead.def, at.Name)
	if err != nil {
		return s.leaveStepToPerson(op, err, "manual")
	}
	return s.beginRun(op, task, x.ahead.params, begun)
}

// beginRun begins the work of a run that is already in the record.
func (s *starts) beginRun(op *operation, def *catalog.Definition, params catalog.Params, begun func()) error {
	run, err := s.newRun(op, def, params, currentStepName(op.rec), op.log, false, begun)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, s.recordInterruption(op)) // a full disk is no failure of the work; this run number is used up
	}
	if err != nil {
		return s.failStart(op, err)
	}
	switch at := op.rec.CurrentStep(); {
	case at != nil:
		s.logLine(op, stepLine(op.rec, at))
	case run.Number() > 1:
		s.logLine(op, fmt.Sprintf("  Run %d begins.", run.Number()))
	}
	s.startRun(op, run)
	return nil
}

// failStart ends an operation whose work cannot be started, or leaves its step to a person.
func (s *starts) failStart(op *operation, err error) error {
	if op.rec.CurrentStep() != nil {
		return s.leaveStepToPerson(op, &work.Error{Code: "start_failed", Err: err}, "manual")
	}
	s.logLine(op, "  Cannot start: "+err.Error())
	op.rec.Error = &statefs.Fault{Code: "start_failed", Message: err.Error()}
	return s.ends.finishAs(op, statefs.CauseFailed)
}

// leaveStepToPerson leaves a step to a person, and records the reason.
func (s *starts) leaveStepToPerson(op *operation, err error, reason string) error {
	at := op.rec.CurrentStep()
	if at == nil {
		return err
	}
	op.rec.Error, op.rec.Reason = fault(err), reason
	at.ErrorCode, at.ErrorMessage, at.EndedAt = op.rec.Error.Code, op.rec.Error.Message, new(s.owner.Now())
	if err := at.Apply(steps.CauseNeedsPerson); err != nil {
		return err
	}
	if reason == "manual" {
		s.logLine(op, needsPersonLine(op.rec, at))
	} else {
		s.logLine(op, crashLine(op.rec))
	}
	if err := s.transition(op, statefs.CauseNeedsPerson); err != nil {
		return err
	}
	return s.settleMove(op)
}

// awaitApproval makes an operation wait until a person approves its current step.
func (s *starts) awaitApproval(op *operation) error {
	at := op.rec.CurrentStep()
	op.rec.Error, op.rec.Reason = nil, "step "+at.Name+" needs approval"
	if err := s.transition(op, statefs.CauseGate); err != nil {
		return err
	}
	s.logLine(op, fmt.Sprintf("%s: waits for approval, 'jobdir approve %s' or 'jobdir reject %s'",
		stepLine(op.rec, at), op.id(), op.id()))
	return s.settleMove(op)
}

// settleMove completes the move of an operation to a state without running work.
func (s *starts) settleMove(op *operation) error {
	if op.run != nil || op.finishedRun != nil {
		return s.finishRun(op)
	}
	return s.persist(op)
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

// needsPersonLine is the log line for a step that waits for a person; it names the possible
// commands.
func needsPersonLine(rec *statefs.Record, at *steps.Step) string {
	return fmt.Sprintf("  ERROR: step %s: %s. A person must act: mend it, then 'jobdir retry %s'; or 'jobdir skip %s', or 'jobdir cancel %s'.",
		at.Name, rec.Error.Message, rec.ID, rec.ID, rec.ID)
}

// applyStepStart records the start of the current step.
func (s *starts) applyStepStart(rec *statefs.Record, now time.Time) {
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
	at.Begin(rec.Run, logSize(s.owner.LogPath(rec.ID)))
	at.StartedAt, at.EndedAt, at.ErrorCode, at.ErrorMessage, at.Reason = &now, nil, "", "", ""
	_ = at.Apply(steps.CauseStart) // passSkippedSteps has checked it
	if def, err := s.storedDefinition(rec); err == nil {
		rec.Phase = def.Phase(rec.Steps)
	}
	rec.Progress = progressNow(rec, statefs.Progress{At: now, Step: &statefs.StepProgress{Name: at.Name}})
}

// An operation has ended when its required steps are done: the record is terminal with trailing
// set, the index holds it, and waiting clients get the result. Its marker is trailing until the
// last optional step has ended.
//
//	record: completed, trailing ─▶ sync ─▶ index ─▶ rename to ID.trailing ─▶ ...
//	... ─▶ record: all done ─▶ sync ─▶ remove the marker
//
// The record is written first, so after a crash it decides what happens to the marker (statefs.FinishingOptional).

// finishRequiredSteps ends an operation whose required steps are done.
func (s *starts) finishRequiredSteps(op *operation, x seen, _ decide.Answer) error {
	def := x.ahead.def
	noteMilestone(op.rec, def)
	op.rec.Reason, op.rec.Error = "", nil
	if len(op.optionalSteps) > 0 || def.Graph().HasUnfinishedOptional(op.rec.Steps) {
		return s.ends.finishAs(op, statefs.CauseMainDone)
	}
	return s.ends.finishAs(op, statefs.CauseDone)
}

// runNumber returns the number of the current run: that of the current required step, or else of
// the operation.
func runNumber(rec *statefs.Record) int {
	if at := rec.CurrentStep(); at != nil {
		return at.Run
	}
	return rec.Run
}

// currentStepName returns the name of the current required step, "" if there is none.
func currentStepName(rec *statefs.Record) string {
	if at := rec.CurrentStep(); at != nil {
		return at.Name
	}
	return ""
}
