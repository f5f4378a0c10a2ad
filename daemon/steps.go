package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// A required step is a run of its operation (docs/adr/0019). The code for steps is in these files:
//
//	steps.go          which step a run executes, what its end means, and what follows: the next step, a gate, the end
//	step_actions.go   requests by people: retry, skip, set, approve, reject
//	optional_step.go  optional steps, which run beside and after the others

// progressNow returns the progress of an operation by its step statuses, which are newer than said,
// the last report of its run.
func progressNow(rec *statefs.Record, said statefs.Progress) *statefs.Progress {
	finished, all := steps.Progress(rec.Steps)
	total := int64(all)
	now := &statefs.Progress{Done: int64(finished), Total: &total, Phase: rec.Phase, At: said.At}
	if at := rec.CurrentStep(); at != nil && said.Step != nil && said.Step.Name == at.Name {
		now.Step = said.Step
	}
	return now
}

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

// currentWork returns the definition by which an operation works now: that of its job, or that of
// its current step. A gate has none.
func (c *core) currentWork(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, params, err := c.definition(rec)
	at := rec.CurrentStep()
	if err != nil || at == nil {
		return def, params, err
	}
	def, err = stepWork(def, at.Name)
	return def, params, err
}

func stepWork(def *catalog.Definition, name string) (*catalog.Definition, error) {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil, fmt.Errorf("job %s has no work for a step %q", def.Address(), name)
	}
	return step.Work, nil
}

// stepNumber returns the number of a step, from 1.
func stepNumber(list []steps.Step, name string) int {
	return 1 + slices.IndexFunc(list, func(s steps.Step) bool { return s.Name == name })
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
			now := s.owner.Now()
			at.Reason, at.EndedAt = steps.ConditionNotMet+step.When, &now
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

// stepAhead is what follows in an operation with steps.
type stepAhead struct {
	def     *catalog.Definition
	params  catalog.Params
	skipped []string
}

// advanceQueued advances the steps of a queued operation. It returns true if the operation no
// longer belongs in the queue: it is at a gate, all steps are done, or a step failed.
func (dc *decisions) advanceQueued(op *operation) (elsewhere bool, err error) {
	if len(op.rec.Steps) == 0 {
		return false, nil
	}
	def, params, err := dc.definition(op.rec)
	if err != nil {
		return false, nil //nolint:nilerr // its start fails too and reports the error
	}
	move, skipped, err := dc.starts.passSkippedSteps(op, def, params)
	if err != nil {
		return true, dc.starts.leaveStepToPerson(op, err, "manual")
	}
	if len(skipped) > 0 {
		noteMilestone(op.rec, def)
		if err := dc.persist(op); err != nil {
			return true, err
		}
		dc.starts.logSkipped(op, skipped)
	}
	answer, err := dc.ask(op, seen{Observation: decide.StepReached{Move: move}, ahead: stepAhead{def: def}})
	return answer.Effect != decide.None, err
}

// nextStep goes on after a step that is done. If the next step needs the same lane and limits it
// begins at once; otherwise the operation goes to the queue, to the gate or to its end.
func (dc *decisions) nextStep(op *operation) error {
	def, params, err := dc.definition(op.rec)
	if isTransient(err) {
		return err
	}
	lane, limits := op.rec.Lane, op.rec.Limits
	if ended := op.run.Step(); ended != nil {
		lane, limits = op.rec.LaneAndLimitsFor(steps.Find(op.rec.Steps, ended.Name))
	}
	var move steps.Move
	var skipped []string
	if err == nil {
		move, skipped, err = dc.starts.passSkippedSteps(op, def, params)
	}
	if err != nil {
		return dc.starts.leaveStepToPerson(op, err, "manual")
	}
	noteMilestone(op.rec, def)
	nextLane, nextLimits := op.rec.LaneAndLimits()
	reached := decide.StepReached{Move: move, Done: true, SamePlaces: nextLane == lane && equalSets(limits, nextLimits)}
	answer := decide.Decide(dc.snapshot(op), reached, dc.env(op))
	if answer.Effect != decide.BeginStep { // which logs them once its record is durable
		dc.starts.logSkipped(op, skipped)
	}
	return dc.carryOut(op, seen{ahead: stepAhead{def, params, skipped}}, answer)
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
	now := s.owner.Now()
	op.rec.Error, op.rec.Reason = fault(err), reason
	at.ErrorCode, at.ErrorMessage, at.EndedAt = op.rec.Error.Code, op.rec.Error.Message, &now
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

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// applyStepEnd records in a step how its run ended. It is called once per run, before the record is
// written.
func (f *finisher) applyStepEnd(rec *statefs.Record, r *work.Run, cause statefs.Cause) {
	rec.Steps = steps.Clone(rec.Steps)
	at := steps.Find(rec.Steps, r.StepName())
	if at == nil {
		return
	}
	at.EndedAt, at.LogTo = new(r.Outcome().EndedAt(at.StartedAt, f.owner.Now())), logSize(r.LogPath())
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
		f.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
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
