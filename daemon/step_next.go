package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// ahead brings the steps of an operation to where something is to be done about one of them: what is left out by its condition is skipped. It
// returns the names of those.
func (d *Daemon) ahead(op *operation, def *catalog.Definition, params catalog.Params) (move steps.Move, skipped []string, err error) {
	list := op.rec.Steps
	for {
		move, name := def.Graph().Main(list)
		at := steps.Find(list, name)
		switch {
		case move == steps.Wait && at.Status == steps.FailedRetryable:
			return steps.Start, skipped, nil // its time has come, or it would not be asked
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
				return move, skipped, &workError{code: "when_failed", err: fmt.Errorf("when: %s", strings.TrimPrefix(whenErr.Error(), "when of step "+name+": "))}
			}
			if holds {
				return move, skipped, nil
			}
			now := d.owner.Now()
			at.Reason, at.EndedAt = "its condition does not hold: "+step.When, &now
			err = at.Apply(steps.CauseWhen)
			skipped = append(skipped, name)
		}
		if err != nil {
			return move, skipped, err
		}
	}
}

// saySkipped says which steps are left out.
func (d *Daemon) saySkipped(op *operation, names []string) {
	for _, name := range names {
		at := steps.Find(op.rec.Steps, name)
		d.say(op, fmt.Sprintf("%s: skipped, %s", stepLine(op.rec, at), at.Reason))
	}
}

// stepAhead is asked when an operation with steps is queued. It reports true when that is not where it is to wait: at a gate, or when all is done.
func (d *Daemon) stepAhead(op *operation) (elsewhere bool, err error) {
	def, params, err := d.definition(op.rec)
	if err != nil {
		return false, nil //nolint:nilerr // it cannot be begun either, and says so then
	}
	move, skipped, err := d.ahead(op, def, params)
	if err != nil {
		return true, d.cannotStep(op, err)
	}
	if len(skipped) > 0 {
		reached(op.rec, def)
		if err := d.durable(op); err != nil {
			return true, err
		}
		d.saySkipped(op, skipped)
	}
	switch move {
	case steps.Gate:
		return true, d.toGate(op)
	case steps.Over:
		return true, d.mainDone(op, def)
	case steps.Start, steps.Wait:
	}
	return false, nil
}

// nextStep goes on after a step that is done: with the next one in the same breath when that needs nothing else than what the operation
// holds, else by way of the queue, the gate or the end.
func (d *Daemon) nextStep(op *operation) error {
	def, params, err := d.definition(op.rec)
	if mends(err) {
		return err
	}
	lane, limits := op.rec.Lane, op.rec.Limits
	if ended := op.run.step.def; ended != nil {
		lane, limits = op.rec.TakesFor(steps.Find(op.rec.Steps, ended.Name))
	}
	var move steps.Move
	var skipped []string
	if err == nil {
		move, skipped, err = d.ahead(op, def, params)
	}
	if err != nil {
		return d.cannotStep(op, err)
	}
	reached(op.rec, def)
	switch {
	case move == steps.Over:
		d.saySkipped(op, skipped)
		return d.mainDone(op, def)
	case op.cancelling != nil:
		d.saySkipped(op, skipped)
		return d.finishAs(op, op.cancelCause) // the step had ended by itself before
	case op.state == statefs.Paused:
		d.saySkipped(op, skipped)
		op.unsaved = true
		return d.leave(op) // and goes on when it is resumed
	case op.pausing != nil:
		if err := d.settlePause(op); err != nil {
			return err
		}
		d.saySkipped(op, skipped)
		return d.leave(op)
	case move == steps.Gate:
		d.saySkipped(op, skipped)
		return d.toGate(op)
	}
	nextLane, nextLimits := op.rec.Takes()
	if nextLane == lane && equalSets(limits, nextLimits) && !d.draining() && !d.stopping.Load() {
		return d.advance(op, def, params, skipped)
	}
	d.saySkipped(op, skipped)
	if err := d.moveByRecord(op, statefs.CauseNextStep); err != nil {
		return err
	}
	return d.leave(op)
}

// advance begins the next step in the place of the one that is done.
//
// The order is: record that says both, sync, work. So after a crash either the one step ran last, and its end is found again, or the other one may
// have been begun.
func (d *Daemon) advance(op *operation, def *catalog.Definition, params catalog.Params, skipped []string) error {
	begun, err := d.beginning.one(d.owner)
	if err != nil {
		return err
	}
	defer func() {
		if op.run == nil {
			begun()
		}
	}()
	op.noteProgress()
	rec := *op.rec
	d.noteStart(&rec, d.owner.Now())
	if err := d.owner.WriteRecord(&rec); err != nil {
		return err
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endedBy, op.unsaved = &rec, nil, "", false
	ended.commands.taken()
	op.show()
	d.saySkipped(op, skipped)
	at := rec.CurrentStep()
	work, err := workOfStep(def, at.Name)
	if err != nil {
		return d.cannotStep(op, err)
	}
	return d.beginRun(op, work, params, begun)
}

// beginRun begins the work of a run that the record names already.
func (d *Daemon) beginRun(op *operation, work *catalog.Definition, params catalog.Params, begun func()) error {
	run, do, err := d.newRun(op, work, params, false)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, d.requeue(op)) // a full disk is no fault of the work; the number of this run is spent
	}
	if err != nil {
		return d.cannotStart(op, err)
	}
	run.begun = begun
	switch at := op.rec.CurrentStep(); {
	case at != nil:
		d.say(op, stepLine(op.rec, at))
	case run.number > 1:
		d.say(op, fmt.Sprintf("  Run %d begins.", run.number))
	}
	d.startRun(op, run, do)
	return nil
}

// cannotStart ends an operation whose work cannot be begun, or leaves its step to a person.
func (d *Daemon) cannotStart(op *operation, err error) error {
	if op.rec.CurrentStep() != nil {
		return d.cannotStep(op, &workError{code: "start_failed", err: err})
	}
	d.say(op, "  Cannot start: "+err.Error())
	op.rec.Error = &statefs.Fault{Code: "start_failed", Message: err.Error()}
	return d.finishAs(op, statefs.CauseFailed)
}

// cannotStep leaves a step to a person that cannot be begun.
func (d *Daemon) cannotStep(op *operation, err error) error {
	at := op.rec.CurrentStep()
	if at == nil {
		return err
	}
	now := d.owner.Now()
	op.rec.Error, op.rec.Reason = fault(err), "manual"
	at.ErrorCode, at.ErrorMessage, at.EndedAt = op.rec.Error.Code, op.rec.Error.Message, &now
	if err := at.Apply(steps.CauseNeedsPerson); err != nil {
		return err
	}
	d.say(op, needsPersonLine(op.rec, at))
	if err := d.moveByRecord(op, statefs.CauseNeedsPerson); err != nil {
		return err
	}
	return d.letGo(op)
}

// toGate has an operation wait until a person approves the step at which it is.
func (d *Daemon) toGate(op *operation) error {
	at := op.rec.CurrentStep()
	op.rec.Error, op.rec.Reason = nil, "step "+at.Name+" needs approval"
	if err := d.moveByRecord(op, statefs.CauseGate); err != nil {
		return err
	}
	d.say(op, fmt.Sprintf("%s: waits for approval, 'jobdir approve %s' or 'jobdir reject %s'", stepLine(op.rec, at), op.id(), op.id()))
	return d.letGo(op)
}

// letGo is for an operation that was moved to where it has no work in hand.
func (d *Daemon) letGo(op *operation) error {
	if op.run != nil || op.left != nil {
		return d.leave(op)
	}
	return d.durable(op)
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
