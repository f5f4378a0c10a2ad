package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
	"github.com/jobdir/jobdir/stream"
)

// begin starts the work of a queued operation.
//
// The order is: record with the run number and next: running, rename, sync, work. So after a crash queued means that nothing was
// begun, and running means that it may have been. The sync makes the submission durable too, where its submitter still waits. The record of
// the first run of a handler is written later, or with its end: see beginsUnsaid.
func (d *Daemon) begin(op *operation) error {
	begun, err := d.beginning.one(d.owner)
	if err != nil {
		return err
	}
	defer func() {
		if op.run == nil {
			begun()
		}
	}()
	def, params, err := d.workOf(op.rec)
	if mends(err) {
		return err
	}
	if err != nil {
		return d.cannotStart(op, err)
	}
	if d.config.Keepers != nil && def.Work() != catalog.WorkHandler {
		// Before anything has begun: a disk that is too full for a keeper's files is no fault of the work.
		if err := d.config.Keepers.Prepare(context.Background()); err != nil {
			return fmt.Errorf("begin %s: %w", op.id(), err)
		}
	}
	// The log is there before the marker says running, so that whoever follows the event finds it.
	d.closeLog(op)
	if _, err := d.openShared(op, def.Work() != catalog.WorkHandler || len(op.rec.Steps) > 0); err != nil {
		return err
	}
	if err := d.markRunning(op, beginsUnsaid(op.rec, def)); err != nil {
		return err
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	return d.beginRun(op, def, params, begun)
}

func (d *Daemon) startRun(op *operation, r *run, do work) {
	op.run = r
	id := op.id()
	look := func() { d.looks.wantNames(id, 0) } // it is about the work and no file
	r.start(do, &d.runs, look, look, look)
}

func (d *Daemon) markRunning(op *operation, unsaid bool) error {
	rec := *op.rec
	now := d.owner.Now()
	if len(rec.Steps) == 0 || rec.StartedAt == nil { // a step has a time of its own
		rec.StartedAt = &now
	}
	d.noteStart(&rec, now)
	d.lanes.starts.note(laneOf(op.rec), now)
	if err := rec.Apply(op.state, statefs.CauseStart, now); err != nil {
		return err
	}
	if !unsaid {
		rec.Next = statefs.Running
		if err := d.owner.WriteRecord(&rec); err != nil {
			return err
		}
	}
	err := d.owner.Move(op.id(), op.state, statefs.Running)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved // somebody moved or removed it: the number of this run is spent, nothing was begun
	}
	if err != nil {
		return err
	}
	d.logger.Info("transition", "id", rec.ID, "from", op.state, "to", statefs.Running, "cause", statefs.CauseStart, "run", rec.Run)
	d.counters.transitions.Add(1)
	op.rec = &rec
	op.set(statefs.Running)
	if unsaid {
		op.unsaid = time.Now()
		d.behind.add(op.id(), op.unsaid)
	}
	return nil
}

// noteStart notes in a record that a run begins: of its job, or of the step at which it is.
func (d *Daemon) noteStart(rec *statefs.Record, now time.Time) {
	rec.Run++
	rec.Starts++
	rec.LaneTurn = d.lanes.turns.next(laneOf(rec))
	machine := statefs.ThisMachine()
	rec.Host, rec.Boot, rec.PID = machine.Host, machine.Boot, os.Getpid()
	rec.StalledAt, rec.Error, rec.ExitCode, rec.Signal = nil, nil, nil, ""
	if len(rec.Steps) > 0 {
		d.noteStepStart(rec, now)
	}
}

// definition returns the job as it stood when the operation was submitted.
func (d *Daemon) definition(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, err := d.keptDefinition(rec)
	if err != nil {
		return nil, catalog.Params{}, err
	}
	kept, err := rec.ParamsNow()
	var params catalog.Params
	if err == nil {
		params, err = def.BindKept(kept)
	}
	if err != nil {
		return nil, catalog.Params{}, fmt.Errorf("job %s: %w", def.Address(), err)
	}
	return def, params, nil
}

func (d *Daemon) keptDefinition(rec *statefs.Record) (*catalog.Definition, error) {
	if def := d.definitions.get(rec.Definition); def != nil {
		return def, nil
	}
	if rec.Definition == "" {
		if def := d.config.Catalog.Get(rec.Group, rec.Job); def != nil {
			return def, nil
		}
		return nil, fmt.Errorf("job %s/%s is not defined", rec.Group, rec.Job)
	}
	source, err := d.owner.Definition(rec.Definition)
	if err != nil {
		return nil, fmt.Errorf("job %s/%s: read the definition it was submitted under: %w", rec.Group, rec.Job, err)
	}
	defs, err := catalog.Parse("definitions/"+rec.Definition+".yaml", source)
	if err != nil || len(defs) != 1 {
		return nil, fmt.Errorf("job %s/%s: the definition it was submitted under cannot be read: %w", rec.Group, rec.Job, errors.Join(err, fs.ErrInvalid))
	}
	d.definitions.put(rec.Definition, defs[0])
	return defs[0], nil
}

// newRun prepares the work; nothing runs yet. adopted says that an earlier daemon has begun this run.
func (d *Daemon) newRun(op *operation, def *catalog.Definition, params catalog.Params, adopted bool) (*run, work, error) {
	name := ""
	if at := op.rec.CurrentStep(); at != nil {
		name = at.Name
	}
	return d.prepare(op, def, params, name, op.log, adopted)
}

// prepare is newRun for a step, which may be an optional one; "" is the work of a job without steps.
func (d *Daemon) prepare(op *operation, def *catalog.Definition, params catalog.Params, step string, log *stream.Writer, adopted bool) (*run, work, error) {
	r := &run{
		id: op.id(), number: op.rec.Run, def: def, params: params, owner: d.owner, logger: d.logger, files: d.files,
		environ: d.config.Environ, laneEnv: d.lanes.turns.environ(laneOf(op.rec), op.rec.LaneTurn), grace: d.config.Grace, retryOf: op.rec.RetryOf, failedOnly: op.rec.FailedItems, redoFrom: op.rec.RedoFrom,
		told: d.tellProgress(op.rec), starter: d.starter, adopted: adopted, since: time.Now().Add(-wroteEvery), leaving: make(chan struct{}),
	}
	if step != "" {
		at := steps.Find(op.rec.Steps, step)
		var err error
		if r.step, err = d.stepOfRun(op.rec, step); err != nil {
			return nil, nil, err
		}
		r.number, r.side = at.Run, at.Optional
	}
	switch {
	case adopted && r.side:
		r.elapsed = max(d.owner.Now().Sub(*steps.Find(op.rec.Steps, step).StartedAt), 0)
	case adopted:
		r.elapsed = op.rec.Worked(d.owner.Now())
		r.report.progress = r.step.own(d.saidBefore(op.rec))
	}
	if def.Grace > 0 {
		r.grace = def.Grace
	}
	do := commandWork
	switch def.Work() {
	case catalog.WorkHandler:
		handler, ok := d.config.Handlers[def.Handler]
		if !ok {
			return nil, nil, fmt.Errorf("job %s: this program has no handler %q", def.Address(), def.Handler)
		}
		r.handler, do = handler, handlerWork
		if handler.Total != nil {
			r.report.total = handler.Total(params)
		}
	case catalog.WorkItems:
		do = itemsWork
	case catalog.WorkRun, catalog.WorkSteps:
	}
	r.log = log
	if def.Work() != catalog.WorkHandler {
		var err error
		var given json.RawMessage
		if given, err = op.rec.ParamsNow(); err != nil {
			return nil, nil, err
		}
		if r.scratch, err = newScratch(r.logPath(), given, adopted); err != nil {
			return nil, nil, err
		}
		if err := os.MkdirAll(d.owner.ArtifactsPath(op.id()), 0o750); err != nil {
			return nil, nil, fmt.Errorf("make the folder of artifacts: %w", err)
		}
	}
	if def.Work() == catalog.WorkItems {
		// Now, when a disk that is full only makes it wait, and not with the first item that ends.
		items, err := r.appendItems()
		if err != nil {
			return nil, nil, err
		}
		r.report.items = items
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, do, nil
}

func (d *Daemon) openLog(op *operation) (*stream.Writer, error) { return d.openShared(op, true) }

// openShared opens the log. One that no process but ours writes to need not be looked at before each line.
func (d *Daemon) openShared(op *operation, shared bool) (*stream.Writer, error) {
	if op.log != nil {
		return op.log, nil
	}
	file, err := d.owner.AppendLog(op.id())
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", op.id(), err)
	}
	log, err := stream.NewWriter(file, stream.WriterOptions{Shared: shared})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of %s: %w", op.id(), err), file.Close())
	}
	op.log = log
	return log, nil
}

func (d *Daemon) closeLog(op *operation) {
	if op.log == nil {
		return
	}
	if err := op.log.Close(); err != nil {
		d.logger.Error("log not closed", "id", op.id(), "error", err)
	}
	op.log = nil
}
