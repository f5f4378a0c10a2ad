package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// optionalStep is a running optional step.
type optionalStep struct {
	run *work.Run
	log *stream.Writer
	// shared means that it uses the places that its operation holds; own means that it holds its
	// own.
	shared, own bool
}

// working reports whether any work of the operation is running.
func (op *operation) working() bool { return op.run != nil || len(op.optionalSteps) > 0 }

// beginOptionalSteps starts the optional steps that are ready. The operation does not wait for
// them.
func (d *Daemon) beginOptionalSteps(op *operation) error {
	if !op.allowsOptionalSteps() || op.pausing != nil || op.cancelling != nil || d.stopping.Load() || d.draining() {
		d.admission.releaseWaitingSteps(op)
		return nil
	}
	names := d.dueOptionalSteps(op)
	if len(names) == 0 {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if err != nil {
		return err
	}
	for _, name := range append(names, def.Graph().ReadyOptional(op.rec.Steps)...) {
		if op.optionalSteps[name] != nil || !def.Graph().Ready(op.rec.Steps, name) {
			continue
		}
		if err := d.beginOptionalStep(op, def, params, name); err != nil {
			return err
		}
	}
	return nil
}

// allowsOptionalSteps reports whether optional steps may start in the state of their operation.
// They may while its required steps wait, unless the operation is paused, ended or has not begun.
func (op *operation) allowsOptionalSteps() bool {
	switch op.state {
	case statefs.Running, statefs.Trailing, statefs.WaitingApproval, statefs.FailedManual, statefs.FailedRetryable:
		return len(op.rec.Steps) > 0
	case statefs.Queued:
		return op.rec.MainRun() > 0
	case statefs.Scheduled, statefs.Paused, statefs.Completed, statefs.Cancelled, statefs.Failed:
	}
	return false
}

// dueOptionalSteps returns the optional steps whose retry is due. If there are only pending ones,
// it returns a single "", so that the caller checks which of them are ready.
func (d *Daemon) dueOptionalSteps(op *operation) (names []string) {
	now, pending := d.owner.Now(), false
	for _, s := range op.rec.Steps {
		switch {
		case !s.Optional || op.optionalSteps[s.Name] != nil:
		case s.Status == steps.Pending:
			pending = true
		case s.Status == steps.FailedRetryable && (s.DueAt == nil || !s.DueAt.After(now)):
			names = append(names, s.Name)
		}
	}
	if pending && len(names) == 0 {
		names = append(names, "")
	}
	return names
}

// beginOptionalStep starts an optional step: it writes and syncs the record, and then starts the
// work.
func (d *Daemon) beginOptionalStep(op *operation, def *catalog.Definition, params catalog.Params, name string) error {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil
	}
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at, now := steps.Find(rec.Steps, name), d.owner.Now()
	if holds, err := step.Holds(catalog.Values{Params: params, ID: op.id().String(), Steps: rec.Steps}); err != nil ||
		!holds {
		return d.skipOptionalStep(op, &rec, at, step, err)
	}
	places, may := d.admission.tryAdmitStep(op, at)
	if !may {
		return nil // tried again when it may
	}
	begun, err := d.fdBudget.reserveForWork()
	if err != nil {
		return err
	}
	if err := d.owner.MakeStepFolder(op.id()); err != nil {
		begun()
		return err
	}
	if at.ErrorCode != "" {
		at.Retries++
	}
	rec.Run++
	at.Log = name + ".log"
	at.Begin(rec.Run, logSize(d.owner.StepLogPath(op.id(), name)))
	at.StartedAt, at.EndedAt, at.DueAt, at.ErrorCode, at.ErrorMessage, at.Reason = &now, nil, nil, "", "", ""
	err = at.Apply(steps.CauseStart)
	if err == nil {
		err = d.saveOptionalSteps(op, &rec)
	}
	var s *optionalStep
	if err == nil {
		s, err = d.newOptionalStep(op, step.Work, params, name, false, begun)
	}
	if err != nil {
		begun()
		return d.optionalStepNotBegun(op, name, err)
	}
	s.shared, s.own = places.shared, places.own
	d.logLine(op, fmt.Sprintf("%s begins beside; its output: 'jobdir logs %s --step %s'",
		stepLine(op.rec, at), op.id(), name))
	d.startOptionalStep(op, s)
	return nil
}

// skipOptionalStep skips an optional step whose condition does not hold. If the condition cannot be
// evaluated, it leaves the step to a person.
func (d *Daemon) skipOptionalStep(op *operation, rec *statefs.Record, at *steps.Step, step *catalog.Step,
	failed error,
) error {
	now, cause := d.owner.Now(), steps.CauseWhen
	at.EndedAt, at.Reason = &now, steps.ConditionNotMet+step.When
	if failed != nil {
		cause, at.Reason, at.ErrorCode, at.ErrorMessage = steps.CauseNeedsPerson, "", "when_failed", failed.Error()
	}
	if err := at.Apply(cause); err != nil {
		return err
	}
	d.reconcileQueue.enqueue(op.id()) // steps that need it may begin
	return d.saveOptionalSteps(op, rec)
}

// optionalStepNotBegun handles an optional step that is recorded as running but could not be
// started. After a file error the step is cut off and starts again later; otherwise it needs a
// person.
func (d *Daemon) optionalStepNotBegun(op *operation, name string, err error) error {
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at, now := steps.Find(rec.Steps, name), d.owner.Now()
	if at.Status != steps.Running {
		return err
	}
	at.EndedAt = &now
	d.admission.releaseStep(op, name)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, at.Apply(steps.CauseCutOff), d.saveOptionalSteps(op, &rec))
	}
	at.ErrorCode, at.ErrorMessage = "start_failed", err.Error()
	return errors.Join(at.Apply(steps.CauseNeedsPerson), d.saveOptionalSteps(op, &rec))
}

// saveOptionalSteps writes and syncs a record with changed optional steps, after noting the
// milestone that they have reached.
func (d *Daemon) saveOptionalSteps(op *operation, rec *statefs.Record) error {
	if def, err := d.storedDefinition(rec); err == nil {
		noteMilestone(rec, def)
	}
	if err := d.commitRecord(rec); err != nil {
		return err
	}
	op.rec = rec
	d.publishRecord(op)
	return nil
}

// newOptionalStep prepares the run of an optional step.
func (d *Daemon) newOptionalStep(op *operation, def *catalog.Definition, params catalog.Params, name string,
	adopted bool, begun func(),
) (*optionalStep, error) {
	file, err := d.owner.Output.AppendLog(op.id(), name)
	if err != nil {
		return nil, fmt.Errorf("open the log of step %s of %s: %w", name, op.id(), err)
	}
	log, err := stream.NewWriter(file, stream.WriterOptions{Shared: true})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r, err := d.prepareRun(op, def, params, name, log, adopted, begun)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &optionalStep{run: r, log: log}, nil
}

func (d *Daemon) startOptionalStep(op *operation, s *optionalStep) {
	if op.optionalSteps == nil {
		op.optionalSteps = make(map[string]*optionalStep)
	}
	op.optionalSteps[s.run.StepName()] = s
	s.run.Start(&d.runs)
}

// adoptOptionalSteps continues the optional steps that an earlier daemon started. A step that was
// cut off starts again, unless its restart rule forbids that.
func (d *Daemon) adoptOptionalSteps(op *operation) error {
	if !slices.ContainsFunc(op.rec.Steps, func(s steps.Step) bool { return s.Optional && s.Status == steps.Running }) {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if isTransient(err) {
		return err
	}
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	for i := range rec.Steps {
		at := &rec.Steps[i]
		if !at.Optional || at.Status != steps.Running {
			continue
		}
		var task *catalog.Definition
		if err == nil {
			task, err = stepWork(def, at.Name)
		}
		if err == nil && d.config.Keepers != nil {
			if goesOn, adoptErr := d.adoptOptionalStep(op, task, params, at); goesOn || adoptErr != nil {
				if adoptErr != nil {
					return adoptErr
				}
				continue
			}
		}
		now := d.owner.Now()
		at.EndedAt = &now
		cause := steps.CauseCutOff
		a := attemptOutcome{restart: catalog.RestartFail, code: work.CodeCutOff, uncounted: op.wasPaused()}
		if task != nil {
			d.noteOptionalAttempt(at, task, &a, now)
		}
		if a.nextCause() != statefs.CauseRescued {
			cause, at.ErrorCode = steps.CauseNeedsPerson, work.CodeCutOff
			at.ErrorMessage = d.cutOffMessage(op.id(), task, at, cutOffText)
		}
		if a.crashed() {
			at.ErrorMessage += "; " + crashText(d.crashLimitOf(task))
		}
		if err := at.Apply(cause); err != nil {
			return err
		}
	}
	return d.saveOptionalSteps(op, &rec)
}

func (d *Daemon) adoptOptionalStep(op *operation, def *catalog.Definition, params catalog.Params,
	at *steps.Step,
) (goesOn bool, err error) {
	commands := d.workHost.Remaining(op.id(), d.heldCommands[op.id()], at.Run, at.Name)
	waits := d.waitsForKeeper(def, params, nil)
	if len(commands) == 0 && !waits {
		return false, statefs.RemoveExit(d.owner.Dir(), statefs.ExitName(op.id(), at.Name))
	}
	s, err := d.newOptionalStep(op, def, params, at.Name, true, func() {}) // it has begun already
	if isTransient(err) {
		return false, err
	}
	if err != nil {
		d.logger.Error("ending a command of an earlier daemon: its step cannot continue", "id", op.id(), "step",
			at.Name, "error", err)
		work.EndCommands(commands...)
		return false, nil
	}
	s.run.Adopt(commands, waits, op.state == statefs.Paused)
	places := d.admission.holdStep(op, at)
	s.shared, s.own = places.shared, places.own
	d.logger.Info("work of an earlier daemon continues", "id", op.id(), "step", at.Name, "run", at.Run,
		"commands", len(commands))
	d.startOptionalStep(op, s)
	return true, nil
}

// endOptionalSteps ends the running optional steps with end, and reports whether there are any.
func (d *Daemon) endOptionalSteps(op *operation, end func(*work.Run)) bool {
	for _, s := range op.optionalSteps {
		end(s.run)
	}
	return len(op.optionalSteps) > 0
}

// syncOptionalPause stops and continues the optional steps together with their operation.
func (op *operation) syncOptionalPause() {
	hold := op.pausing != nil || op.state == statefs.Paused
	for _, s := range op.optionalSteps {
		switch held := s.run.PauseRequested(); {
		case hold && !held:
			s.run.Pause()
		case held && !hold:
			s.run.Resume()
		}
	}
}

// isStopped reports whether all work of the operation has stopped after a pause request.
func (op *operation) isStopped() bool {
	for _, s := range op.optionalSteps {
		if !s.run.IsStopped() {
			return false
		}
	}
	return op.run != nil && op.run.IsStopped()
}

// nextOptionalRetry returns when the next retry of an optional step is due, zero for never.
func (op *operation) nextOptionalRetry() (at time.Time) {
	for _, s := range op.rec.Steps {
		if s.Optional && s.Status == steps.FailedRetryable && s.DueAt != nil && (at.IsZero() || s.DueAt.Before(at)) {
			at = *s.DueAt
		}
	}
	return at
}
