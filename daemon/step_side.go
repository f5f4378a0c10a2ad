package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
	"github.com/jobdir/jobdir/stream"
)

// side is an optional step at work.
type side struct {
	run *run
	log *stream.Writer
	// shares says that it works in the places that its operation holds; apart that it holds places of its own.
	shares, apart bool
}

// working reports whether an operation has work in hand.
func (op *operation) working() bool { return op.run != nil || len(op.sides) > 0 }

// beginSides begins the optional steps whose turn it is. Nothing of the operation waits for them.
func (d *Daemon) beginSides(op *operation) error {
	if !op.letsSidesBegin() || op.pausing != nil || op.cancelling != nil || d.stopping.Load() || d.draining() {
		d.admission.leaveSides(op)
		return nil
	}
	names := d.sidesDue(op)
	if len(names) == 0 {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if err != nil {
		return err
	}
	for _, name := range append(names, def.Graph().Side(op.rec.Steps)...) {
		if op.sides[name] != nil || !def.Graph().Ready(op.rec.Steps, name) {
			continue
		}
		if err := d.beginSide(op, def, params, name); err != nil {
			return err
		}
	}
	return nil
}

// letsSidesBegin reports whether optional steps may begin in the state of their operation: whatever its required ones wait for, unless it is held or has
// not begun.
func (op *operation) letsSidesBegin() bool {
	switch op.state {
	case statefs.Running, statefs.Trailing, statefs.WaitingApproval, statefs.FailedManual, statefs.FailedRetryable:
		return len(op.rec.Steps) > 0
	case statefs.Queued:
		return op.rec.MainRun() > 0
	case statefs.Scheduled, statefs.Paused, statefs.Completed, statefs.Cancelled, statefs.Failed:
	}
	return false
}

// sidesDue returns the optional steps that may be tried again; when there are pending ones, "" stands for them.
func (d *Daemon) sidesDue(op *operation) (names []string) {
	now, pending := d.owner.Now(), false
	for _, s := range op.rec.Steps {
		switch {
		case !s.Optional || op.sides[s.Name] != nil:
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

// beginSide begins an optional step: record, sync, work.
func (d *Daemon) beginSide(op *operation, def *catalog.Definition, params catalog.Params, name string) error {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil
	}
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at, now := steps.Find(rec.Steps, name), d.owner.Now()
	if holds, err := step.Holds(catalog.Values{Params: params, ID: op.id().String(), Steps: rec.Steps}); err != nil || !holds {
		return d.leaveOutSide(op, &rec, at, step, err)
	}
	places, may := d.admission.enterSide(op, at)
	if !may {
		return nil // and again when it may
	}
	begun, err := d.beginning.one(d.owner)
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
		err = d.saveSides(op, &rec)
	}
	var s *side
	var do work
	if err == nil {
		s, do, err = d.newSide(op, step.Work, params, name, false)
	}
	if err != nil {
		begun()
		return d.sideNotBegun(op, name, err)
	}
	s.run.begun, s.shares, s.apart = begun, places.shares, places.apart
	d.say(op, fmt.Sprintf("%s begins beside; its output: 'jobdir logs %s --step %s'", stepLine(op.rec, at), op.id(), name))
	d.startSide(op, s, do)
	return nil
}

// leaveOutSide skips an optional step whose condition does not hold, or leaves it to a person when that cannot be judged.
func (d *Daemon) leaveOutSide(op *operation, rec *statefs.Record, at *steps.Step, step *catalog.Step, failed error) error {
	now, cause := d.owner.Now(), steps.CauseWhen
	at.EndedAt, at.Reason = &now, "its condition does not hold: "+step.When
	if failed != nil {
		cause, at.Reason, at.ErrorCode, at.ErrorMessage = steps.CauseNeedsPerson, "", "when_failed", failed.Error()
	}
	if err := at.Apply(cause); err != nil {
		return err
	}
	d.looks.want(op.id()) // what needs it may begin
	return d.saveSides(op, rec)
}

// sideNotBegun is for an optional step that the record says is running and that could not be begun. A full disk has it begin again later.
func (d *Daemon) sideNotBegun(op *operation, name string, err error) error {
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	at, now := steps.Find(rec.Steps, name), d.owner.Now()
	if at.Status != steps.Running {
		return err
	}
	at.EndedAt = &now
	d.admission.leaveSide(op, name)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return errors.Join(err, at.Apply(steps.CauseCutOff), d.saveSides(op, &rec))
	}
	at.ErrorCode, at.ErrorMessage = "start_failed", err.Error()
	return errors.Join(at.Apply(steps.CauseNeedsPerson), d.saveSides(op, &rec))
}

// saveSides makes durable what changed of optional steps, and the milestone that they have reached.
func (d *Daemon) saveSides(op *operation, rec *statefs.Record) error {
	if def, err := d.keptDefinition(rec); err == nil {
		reached(rec, def)
	}
	if err := d.owner.WriteRecord(rec); err != nil {
		return err
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	op.rec = rec
	return nil
}

// newSide prepares an optional step.
func (d *Daemon) newSide(op *operation, def *catalog.Definition, params catalog.Params, name string, adopted bool) (*side, work, error) {
	file, err := d.owner.AppendStepLog(op.id(), name)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log of step %s of %s: %w", name, op.id(), err)
	}
	log, err := stream.NewWriter(file, stream.WriterOptions{Shared: true})
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	r, do, err := d.prepare(op, def, params, name, log, adopted)
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return &side{run: r, log: log}, do, nil
}

func (d *Daemon) startSide(op *operation, s *side, do work) {
	if op.sides == nil {
		op.sides = make(map[string]*side)
	}
	op.sides[s.run.step.name()] = s
	id := op.id()
	look := func() { d.looks.wantNames(id, 0) } // it is about the work and no file
	s.run.start(do, &d.runs, look, look, look)
}

// adoptSides goes on with the optional steps that an earlier daemon has begun. One that was cut off begins again, unless its restart rule says
// otherwise.
func (d *Daemon) adoptSides(op *operation) error {
	if !slices.ContainsFunc(op.rec.Steps, func(s steps.Step) bool { return s.Optional && s.Status == steps.Running }) {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if mends(err) {
		return err
	}
	rec := *op.rec
	rec.Steps = steps.Clone(rec.Steps)
	for i := range rec.Steps {
		at := &rec.Steps[i]
		if !at.Optional || at.Status != steps.Running {
			continue
		}
		var work *catalog.Definition
		if err == nil {
			work, err = workOfStep(def, at.Name)
		}
		if err == nil && d.config.Keepers != nil {
			if goesOn, adoptErr := d.adoptSide(op, work, params, at); goesOn || adoptErr != nil {
				if adoptErr != nil {
					return adoptErr
				}
				continue
			}
		}
		now := d.owner.Now()
		at.EndedAt = &now
		cause := steps.CauseCutOff
		if work == nil || work.Restart() == catalog.RestartFail {
			cause, at.ErrorCode, at.ErrorMessage = steps.CauseNeedsPerson, "cut_off", "the work was cut off because the daemon or the machine stopped"
		}
		if err := at.Apply(cause); err != nil {
			return err
		}
	}
	return d.saveSides(op, &rec)
}

func (d *Daemon) adoptSide(op *operation, work *catalog.Definition, params catalog.Params, at *steps.Step) (goesOn bool, err error) {
	commands := d.leftCommands(op.rec, at.Run, at.Name)
	if len(commands) == 0 {
		return false, statefs.RemoveExit(d.owner.Dir(), statefs.StepExitName(op.id(), at.Name))
	}
	s, do, err := d.newSide(op, work, params, at.Name, true)
	if mends(err) {
		return false, err
	}
	if err != nil {
		d.logger.Error("a command of an earlier daemon is ended: its step cannot go on", "id", op.id(), "step", at.Name, "error", err)
		for _, a := range commands {
			endAll([]keeper.Running{a})
		}
		return false, nil
	}
	s.run.takeOver(commands, op.state == statefs.Paused)
	places := d.admission.holdSide(op, at)
	s.shares, s.apart = places.shares, places.apart
	d.logger.Info("work of an earlier daemon goes on", "id", op.id(), "step", at.Name, "run", at.Run, "commands", len(commands))
	d.startSide(op, s, do)
	return true, nil
}

// endSides asks the optional steps to end, and reports whether there are any at work.
func (d *Daemon) endSides(op *operation, end func(*run)) bool {
	for _, s := range op.sides {
		end(s.run)
	}
	return len(op.sides) > 0
}

// alignSides stops and continues the optional steps with their operation.
func (op *operation) alignSides() {
	hold := op.pausing != nil || op.state == statefs.Paused
	for _, s := range op.sides {
		switch held := s.run.gate.held(); {
		case hold && !held:
			s.run.gate.pause()
		case held && !hold:
			s.run.gate.resume()
		}
	}
}

// standsStill reports whether nothing of an operation moves after a pause was asked for.
func (op *operation) standsStill() bool {
	for _, s := range op.sides {
		if !s.run.gate.isStopped() {
			return false
		}
	}
	return op.run != nil && op.run.gate.isStopped()
}

// sideDue is when the next optional step is tried again, zero for never.
func (op *operation) sideDue() (at time.Time) {
	for _, s := range op.rec.Steps {
		if s.Optional && s.Status == steps.FailedRetryable && s.DueAt != nil && (at.IsZero() || s.DueAt.Before(at)) {
			at = *s.DueAt
		}
	}
	return at
}
