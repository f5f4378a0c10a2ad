package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// optional runs the optional steps of operations, beside their required ones.
type optional struct {
	*core
	starts *starts
}

// beginOptionalSteps starts the optional steps that are ready. The operation does not wait for
// them.
func (o *optional) beginOptionalSteps(op *operation) error {
	if !op.allowsOptionalSteps() || len(op.awaiting) > 0 || o.stopping.Load() || o.draining() {
		o.admission.releaseWaitingSteps(op)
		return nil
	}
	names := o.dueOptionalSteps(op)
	if len(names) == 0 {
		return nil
	}
	def, params, err := o.definition(op.rec)
	if err != nil {
		return err
	}
	for _, name := range append(names, def.Graph().ReadyOptional(op.rec.Steps)...) {
		if op.optionalSteps[name] != nil || !def.Graph().Ready(op.rec.Steps, name) {
			continue
		}
		if err := o.beginOptionalStep(op, def, params, name); err != nil {
			return err
		}
	}
	return nil
}

// dueOptionalSteps returns the optional steps whose retry is due. If there are only pending ones,
// it returns a single "", so that the caller checks which of them are ready.
func (o *optional) dueOptionalSteps(op *operation) (names []string) {
	now, pending := o.owner.Now(), false
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
func (o *optional) beginOptionalStep(op *operation, def *catalog.Definition, params catalog.Params, name string) error {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil
	}
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at, now := steps.Find(rec.Steps, name), o.owner.Now()
	if holds, err := step.Holds(catalog.Values{Params: params, ID: op.id().String(), Steps: rec.Steps}); err != nil ||
		!holds {
		return o.skipOptionalStep(op, &rec, at, step, err)
	}
	places, may := o.admission.tryAdmitStep(op, at)
	if !may {
		return nil // tried again when it may
	}
	begun, err := o.starts.fdBudget.reserve(o.owner.Descriptors.ForWork)
	if err != nil {
		return err
	}
	if err := o.owner.MakeStepFolder(op.id()); err != nil {
		begun()
		return err
	}
	if at.ErrorCode != "" {
		at.Retries++
	}
	rec.Run++
	at.Log = name + ".log"
	at.Begin(rec.Run, logSize(o.owner.StepLogPath(op.id(), name)))
	at.StartedAt, at.EndedAt, at.DueAt, at.ErrorCode, at.ErrorMessage, at.Reason = &now, nil, nil, "", "", ""
	err = at.Apply(steps.CauseStart)
	if err == nil {
		err = o.saveOptionalSteps(op, &rec)
	}
	var s *optionalStep
	if err == nil {
		s, err = o.newOptionalStep(op, step.Work, params, name, false, begun)
	}
	if err != nil {
		begun()
		return o.optionalStepNotBegun(op, name, err)
	}
	s.stepPlaces = places
	o.logLine(op, fmt.Sprintf("%s begins beside; its output: 'jobdir logs %s --step %s'",
		stepLine(op.rec, at), op.id(), name))
	o.startOptionalStep(op, s)
	return nil
}

// skipOptionalStep skips an optional step whose condition does not hold. If the condition cannot be
// evaluated, it leaves the step to a person.
func (o *optional) skipOptionalStep(op *operation, rec *statefs.Record, at *steps.Step, step *catalog.Step,
	failed error,
) error {
	cause := steps.CauseWhen
	at.EndedAt, at.Reason = new(o.owner.Now()), steps.ConditionNotMet+step.When
	if failed != nil {
		cause, at.Reason, at.ErrorCode, at.ErrorMessage = steps.CauseNeedsPerson, "", "when_failed", failed.Error()
	}
	if err := at.Apply(cause); err != nil {
		return err
	}
	o.reconcileQueue.enqueue(op.id()) // steps that need it may begin
	return o.saveOptionalSteps(op, rec)
}

// optionalStepNotBegun handles an optional step that is recorded as running but could not be
// started. After a file error the step is cut off and starts again later; otherwise it needs a
// person.
func (o *optional) optionalStepNotBegun(op *operation, name string, err error) error {
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at := steps.Find(rec.Steps, name)
	if at.Status != steps.Running {
		return err
	}
	at.EndedAt = new(o.owner.Now())
	o.admission.releaseStep(op, name)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, at.Apply(steps.CauseCutOff), o.saveOptionalSteps(op, &rec))
	}
	at.ErrorCode, at.ErrorMessage = "start_failed", err.Error()
	return errors.Join(at.Apply(steps.CauseNeedsPerson), o.saveOptionalSteps(op, &rec))
}

// saveOptionalSteps writes and syncs a record with changed optional steps, after noting the
// milestone that they have reached.
func (o *optional) saveOptionalSteps(op *operation, rec *statefs.Record) error {
	if def, err := o.storedDefinition(rec); err == nil {
		noteMilestone(rec, def)
	}
	return o.commitRecord(op, rec)
}

// newOptionalStep prepares the run of an optional step.
func (o *optional) newOptionalStep(op *operation, def *catalog.Definition, params catalog.Params, name string,
	adopted bool, begun func(),
) (*optionalStep, error) {
	log, err := o.openSharedLog(op.id(), name)
	if err != nil {
		return nil, err
	}
	r, err := o.starts.newRun(op, def, params, name, log, adopted, begun)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &optionalStep{run: r, log: log}, nil
}

func (o *optional) startOptionalStep(op *operation, s *optionalStep) {
	op.optionalSteps[s.run.StepName()] = s
	s.run.Start(&o.starts.runs)
}

// adoptOptionalSteps continues the optional steps that an earlier daemon started. A step that was
// cut off starts again, unless its restart rule forbids that.
func (o *optional) adoptOptionalSteps(op *operation) error {
	if !slices.ContainsFunc(op.rec.Steps, func(s steps.Step) bool { return s.Optional && s.Status == steps.Running }) {
		return nil
	}
	def, params, err := o.definition(op.rec)
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
		if err == nil && o.config.Keepers != nil {
			if goesOn, adoptErr := o.adoptOptionalStep(op, task, params, at); goesOn || adoptErr != nil {
				if adoptErr != nil {
					return adoptErr
				}
				continue
			}
		}
		now := o.owner.Now()
		at.EndedAt = &now
		cause := steps.CauseCutOff
		failed := decide.AttemptFailed{CutOff: true, Uncounted: op.wasPaused()}
		a := decide.Decide(decide.Snapshot{}, failed, decide.Env{Restart: catalog.RestartFail})
		if task != nil {
			a = o.noteOptionalAttempt(at, task, failed, now)
		}
		if a.Cause != statefs.CauseRescued {
			cause, at.ErrorCode = steps.CauseNeedsPerson, work.CodeCutOff
			at.ErrorMessage = o.starts.cutOffMessage(op.id(), task, at, cutOffText)
		}
		if a.Crashed {
			at.ErrorMessage += "; " + crashText(o.config.crashLimitOf(task))
		}
		if err := at.Apply(cause); err != nil {
			return err
		}
	}
	return o.saveOptionalSteps(op, &rec)
}

func (o *optional) adoptOptionalStep(op *operation, def *catalog.Definition, params catalog.Params,
	at *steps.Step,
) (goesOn bool, err error) {
	commands := o.starts.workHost.Remaining(op.id(), o.starts.heldCommands[op.id()], at.Run, at.Name)
	waits := o.starts.waitsForKeeper(def, params, nil)
	if len(commands) == 0 && !waits {
		return false, statefs.RemoveExit(o.owner.Dir(), statefs.ExitName(op.id(), at.Name))
	}
	s, err := o.newOptionalStep(op, def, params, at.Name, true, func() {}) // it has begun already
	if isTransient(err) {
		return false, err
	}
	if err != nil {
		o.logger.Error("ending a command of an earlier daemon: its step cannot continue", "id", op.id(), "step",
			at.Name, "error", err)
		work.EndCommands(commands...)
		return false, nil
	}
	s.run.Adopt(commands, waits, op.state == statefs.Paused)
	s.stepPlaces = o.admission.holdStep(op, at)
	o.logger.Info("work of an earlier daemon continues", "id", op.id(), "step", at.Name, "run", at.Run,
		"commands", len(commands))
	o.startOptionalStep(op, s)
	return true, nil
}

// syncOptionalPause stops and continues the optional steps together with their operation.
func (op *operation) syncOptionalPause() {
	hold := op.awaiting[decide.StopWork] != nil || op.state == statefs.Paused
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

// finishOptionalSteps records the ends of optional steps.
func (o *optional) finishOptionalSteps(op *operation) error {
	for name, s := range op.optionalSteps {
		if !s.run.Ended() {
			continue
		}
		if err := o.finishOptionalStep(op, name, s); err != nil {
			return err
		}
	}
	return nil
}

func (o *optional) finishOptionalStep(op *operation, name string, s *optionalStep) error {
	if err := s.run.DiskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if !s.run.Detached() {
		rec := *op.rec
		rec.Steps = steps.Clone(rec.Steps)
		at := steps.Find(rec.Steps, name)
		o.classifyOptionalEnd(&rec, at, s)
		rec.Resources = s.run.Resources(rec.Resources)
		if err := o.saveOptionalSteps(op, &rec); err != nil {
			return err
		}
		if err := errors.Join(s.run.Forget(), o.owner.Output.RemoveEmptyLog(op.id(), name)); err != nil {
			o.logger.Warn("files of a step are left", "id", op.id(), "step", name, "error", err)
		}
		o.logger.Info("optional step ended", "id", op.id(), "step", name, "status", at.Status, "error", at.ErrorCode)
		if at.Status == steps.FailedManual {
			o.logLine(op, fmt.Sprintf("  Optional step %s failed: %s. The operation goes on without it; "+
				"'jobdir retry %s --step %s' tries it again.", name, stream.Printable(at.ErrorMessage), op.id(), name))
		}
	}
	delete(op.optionalSteps, name)
	o.admission.releaseStep(op, name)
	if err := s.log.Close(); err != nil {
		o.logger.Error("log not closed", "id", op.id(), "step", name, "error", err)
	}
	return nil
}

// classifyOptionalEnd sets the status of an optional step from the end of its run.
func (o *optional) classifyOptionalEnd(rec *statefs.Record, at *steps.Step, s *optionalStep) {
	r := s.run
	at.EndedAt, at.LogTo = new(r.Outcome().EndedAt(at.StartedAt, o.owner.Now())), logSize(r.LogPath())
	err := r.Outcome().Err
	if cause := r.EndCause(); cause != nil && !r.Outcome().EndedByItself() {
		err = cause
	}
	partial, err := r.Failure(err)
	change := steps.CauseDone
	switch {
	case work.CauseOf(err) != "", errors.Is(err, work.ErrDetached):
		change = steps.CauseCutOff
	case err != nil:
		change = o.failOptionalStep(rec, at, s, err, partial)
	}
	if change == steps.CauseDone {
		at.Outputs, at.Attempts, at.DiedAt, at.Backoff = r.Report().Members(r.Step().Outputs), 0, nil, 0
	}
	if err := at.Apply(change); err != nil {
		o.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// failOptionalStep records a failed attempt of an optional step, and returns the cause of the
// step's next transition.
func (o *optional) failOptionalStep(rec *statefs.Record, at *steps.Step, s *optionalStep, failure error,
	partial bool,
) steps.Cause {
	r := s.run
	view := statefs.Record{ID: rec.ID, Steps: rec.Steps, Error: fault(failure)}
	if exit := r.Outcome().Exit; exit != nil && exit.Code >= 0 {
		view.ExitCode = &exit.Code
	}
	before := view.Error.Code // classOf may change the code
	class := classOf(r, &view, failure)
	a := o.noteOptionalAttempt(at, r.Def(), attemptOf(r, view.Error.Code, class, partial, before), *at.EndedAt)
	if a.Cause == statefs.CauseDone {
		return steps.CauseDone
	}
	why := addLastLine(r, rec, view.Error, fault(failure), r.LastLine(), o.owner.Now())
	at.ErrorCode, at.ErrorMessage = why.Code, why.Message
	switch {
	case a.Crashed:
		at.ErrorMessage += "; " + crashText(o.config.crashLimitOf(r.Def()))
		return steps.CauseNeedsPerson
	case a.Cause != statefs.CauseRescued:
		return steps.CauseNeedsPerson
	case a.Effect != decide.PlanRetry:
		at.ErrorCode, at.ErrorMessage = "", ""
		return steps.CauseCutOff
	}
	at.Backoff++
	at.DueAt = new(o.owner.Now().Add(retryDelay(r, failure, class, at.Backoff)))
	return steps.CauseRetryLater
}

// noteOptionalAttempt records in an optional step that its run failed or was cut off, and returns what follows.
func (o *optional) noteOptionalAttempt(at *steps.Step, def *catalog.Definition, failed decide.AttemptFailed,
	ended time.Time,
) decide.Answer {
	began := ended
	if at.StartedAt != nil {
		began = *at.StartedAt
	}
	a := o.judgeAttempt(failed, def, began, ended, &at.Attempts, &at.Backoff, &at.DiedAt)
	if (a.Counts || failed.Class == catalog.ClassWarn) && a.Cause != statefs.CauseDone {
		at.RedoFrom = at.Run + 1
	}
	return a
}
