package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// passSkippedSteps applies the conditions of steps until a step is to be started or approved, or all
// are done. Steps whose condition does not hold become skipped; their names are returned.
func (d *Daemon) passSkippedSteps(op *operation, def *catalog.Definition, params catalog.Params) (move steps.Move,
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
			now := d.owner.Now()
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
func (d *Daemon) logSkipped(op *operation, names []string) {
	for _, name := range names {
		at := steps.Find(op.rec.Steps, name)
		d.logLine(op, fmt.Sprintf("%s: skipped, %s", stepLine(op.rec, at), at.Reason))
	}
}

// advanceQueued advances the steps of a queued operation. It returns true if the operation no
// longer belongs in the queue: it is at a gate, all steps are done, or a step failed.
func (d *Daemon) advanceQueued(op *operation) (elsewhere bool, err error) {
	def, params, err := d.definition(op.rec)
	if err != nil {
		return false, nil //nolint:nilerr // its start fails too and reports the error
	}
	move, skipped, err := d.passSkippedSteps(op, def, params)
	if err != nil {
		return true, d.failStep(op, err)
	}
	if len(skipped) > 0 {
		noteMilestone(op.rec, def)
		if err := d.persist(op); err != nil {
			return true, err
		}
		d.logSkipped(op, skipped)
	}
	switch move {
	case steps.Gate:
		return true, d.awaitApproval(op)
	case steps.Over:
		return true, d.finishRequiredSteps(op, def)
	case steps.Start, steps.Wait:
	}
	return false, nil
}

// nextStep goes on after a step that is done. If the next step needs the same lane and limits it
// begins at once; otherwise the operation goes to the queue, to the gate or to its end.
func (d *Daemon) nextStep(op *operation) error {
	def, params, err := d.definition(op.rec)
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
		move, skipped, err = d.passSkippedSteps(op, def, params)
	}
	if err != nil {
		return d.failStep(op, err)
	}
	noteMilestone(op.rec, def)
	switch {
	case move == steps.Over:
		d.logSkipped(op, skipped)
		return d.finishRequiredSteps(op, def)
	case op.cancelling != nil:
		d.logSkipped(op, skipped)
		return d.finishAs(op, op.cancelCause) // the step had ended before the cancel
	case op.state == statefs.Paused:
		d.logSkipped(op, skipped)
		op.unsaved = true
		return d.finishRun(op) // a resume continues it
	case op.pausing != nil:
		if err := d.completePause(op); err != nil {
			return err
		}
		d.logSkipped(op, skipped)
		return d.finishRun(op)
	case move == steps.Gate:
		d.logSkipped(op, skipped)
		return d.awaitApproval(op)
	}
	nextLane, nextLimits := op.rec.LaneAndLimits()
	if nextLane == lane && equalSets(limits, nextLimits) && !d.draining() && !d.stopping.Load() {
		return d.beginNextStep(op, def, params, skipped)
	}
	d.logSkipped(op, skipped)
	if err := d.transition(op, statefs.CauseNextStep); err != nil {
		return err
	}
	return d.finishRun(op)
}

// beginNextStep begins the next step with the lane and limits of the finished step.
//
// The order is: record with the end and the start, sync, work. So after a crash either the first
// step ran last, and its end is found again, or the second one may have started.
func (d *Daemon) beginNextStep(op *operation, def *catalog.Definition, params catalog.Params, skipped []string) error {
	begun, err := d.fdBudget.reserveForWork()
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
	d.applyStart(&rec, d.owner.Now())
	if err := d.commitRecord(&rec); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endCause, op.unsaved = &rec, nil, "", false
	ended.Acknowledge()
	d.publishRecord(op)
	d.logSkipped(op, skipped)
	at := rec.CurrentStep()
	task, err := stepWork(def, at.Name)
	if err != nil {
		return d.failStep(op, err)
	}
	return d.beginRun(op, task, params, begun)
}

// beginRun begins the work of a run that is already in the record.
func (d *Daemon) beginRun(op *operation, def *catalog.Definition, params catalog.Params, begun func()) error {
	run, err := d.newRun(op, def, params, false, begun)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, d.requeue(op)) // a full disk is no failure of the work; this run number is used up
	}
	if err != nil {
		return d.failStart(op, err)
	}
	switch at := op.rec.CurrentStep(); {
	case at != nil:
		d.logLine(op, stepLine(op.rec, at))
	case run.Number() > 1:
		d.logLine(op, fmt.Sprintf("  Run %d begins.", run.Number()))
	}
	d.startRun(op, run)
	return nil
}

// failStart ends an operation whose work cannot be started, or leaves its step to a person.
func (d *Daemon) failStart(op *operation, err error) error {
	if op.rec.CurrentStep() != nil {
		return d.failStep(op, &work.Error{Code: "start_failed", Err: err})
	}
	d.logLine(op, "  Cannot start: "+err.Error())
	op.rec.Error = &statefs.Fault{Code: "start_failed", Message: err.Error()}
	return d.finishAs(op, statefs.CauseFailed)
}

// failStep leaves a step that cannot be started to a person.
func (d *Daemon) failStep(op *operation, err error) error {
	return d.leaveStepToPerson(op, err, "manual")
}

// leaveStepToPerson leaves a step to a person, and records the reason.
func (d *Daemon) leaveStepToPerson(op *operation, err error, reason string) error {
	at := op.rec.CurrentStep()
	if at == nil {
		return err
	}
	now := d.owner.Now()
	op.rec.Error, op.rec.Reason = fault(err), reason
	at.ErrorCode, at.ErrorMessage, at.EndedAt = op.rec.Error.Code, op.rec.Error.Message, &now
	if err := at.Apply(steps.CauseNeedsPerson); err != nil {
		return err
	}
	if reason == "manual" {
		d.logLine(op, needsPersonLine(op.rec, at))
	} else {
		d.logLine(op, crashLine(op.rec))
	}
	if err := d.transition(op, statefs.CauseNeedsPerson); err != nil {
		return err
	}
	return d.settleMove(op)
}

// awaitApproval makes an operation wait until a person approves its current step.
func (d *Daemon) awaitApproval(op *operation) error {
	at := op.rec.CurrentStep()
	op.rec.Error, op.rec.Reason = nil, "step "+at.Name+" needs approval"
	if err := d.transition(op, statefs.CauseGate); err != nil {
		return err
	}
	d.logLine(op, fmt.Sprintf("%s: waits for approval, 'jobdir approve %s' or 'jobdir reject %s'",
		stepLine(op.rec, at), op.id(), op.id()))
	return d.settleMove(op)
}

// settleMove completes the move of an operation to a state without running work.
func (d *Daemon) settleMove(op *operation) error {
	if op.run != nil || op.finishedRun != nil {
		return d.finishRun(op)
	}
	return d.persist(op)
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
