package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/stream"
)

// startOperation starts the work of a queued operation.
//
// The order is: write the record with the run number and next: running, rename, sync, start the
// work. So after a crash, queued means that the work was not started, and running means that it may
// have been. The sync also makes the submission durable if its submitter still waits for that. The
// record of a handler's first run is written later, or with its end: see defersStartRecord.
func (d *Daemon) startOperation(op *operation) error {
	def, params, err := d.currentWork(op.rec)
	if isTransient(err) {
		return err
	}
	if err != nil {
		return d.failStart(op, err)
	}
	if d.config.Keepers != nil && def.Work() != catalog.WorkHandler {
		if err := d.checkSilentKeepers(op.rec); err != nil {
			return err
		}
		// Start the keeper before the run: a disk that is too full for the keeper's files is no
		// fault of the work.
		if err := d.config.Keepers.Prepare(context.Background()); err != nil {
			return fmt.Errorf("begin %s: %w", op.id(), err)
		}
	}
	// A command writes to the log directly, so the log exists before the marker is renamed to
	// running.
	d.closeLog(op)
	if _, err := d.openLogWriter(op, def.Work() != catalog.WorkHandler || len(op.rec.Steps) > 0); err != nil {
		return err
	}
	if err := d.markRunning(op, defersStartRecord(op.rec, def)); err != nil {
		return err
	}
	if err := d.commit(op.id(), change{}, syncFiles); err != nil {
		return err
	}
	id := op.id()
	return d.beginRun(op, def, params, func() { d.admission.releaseReservation(id) })
}

func (d *Daemon) startRun(op *operation, r *work.Run) {
	op.run = r
	r.Start(&d.runs)
}

func (d *Daemon) markRunning(op *operation, unsaid bool) error {
	rec := *op.rec
	now := d.owner.Now()
	if len(rec.Steps) == 0 || rec.StartedAt == nil { // a step has its own start time
		rec.StartedAt = &now
	}
	d.applyStart(&rec, now)
	d.Lanes.Started(laneOf(op.rec), now)
	if err := rec.Apply(op.state, statefs.CauseStart, now); err != nil {
		return err
	}
	writes := []write{moveMarker}
	if !unsaid {
		rec.Next = statefs.Running
		writes = []write{writeRecord, moveMarker}
	}
	row := statefs.Transition{From: op.state, Cause: statefs.CauseStart, To: statefs.Running}
	if err := d.commit(op.id(), change{rec: &rec, from: row.From, to: row.To}, writes...); err != nil {
		return err // if the marker was moved or removed, the run number is spent and no work was started
	}
	d.countTransition(op.id(), row, "run", rec.Run)
	op.rec = &rec
	d.setState(op, statefs.Running)
	if unsaid {
		op.unrecordedStart = time.Now()
		d.deferredStarts.add(op.id(), op.unrecordedStart)
	}
	return nil
}

// applyStart updates a record for the start of a run: of its job, or of its current step.
func (d *Daemon) applyStart(rec *statefs.Record, now time.Time) {
	rec.Run++
	rec.Starts++
	rec.LaneTurn = d.Lanes.NextTurn(laneOf(rec))
	here := machine.This()
	rec.Host, rec.Boot, rec.PID = here.Host, here.Boot, os.Getpid()
	rec.StalledAt, rec.Error, rec.ExitCode, rec.Signal = nil, nil, nil, ""
	if len(rec.Steps) > 0 {
		d.applyStepStart(rec, now)
	}
}

// definition returns the job definition under which the operation was submitted, and the
// parameters.
func (d *Daemon) definition(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, err := d.storedDefinition(rec)
	if err != nil {
		return nil, catalog.Params{}, err
	}
	kept, err := rec.EffectiveParams()
	var params catalog.Params
	if err == nil {
		params, err = def.BindRecorded(kept)
	}
	if err != nil {
		return nil, catalog.Params{}, fmt.Errorf("job %s: %w", def.Address(), err)
	}
	return def, params, nil
}

func (d *Daemon) storedDefinition(rec *statefs.Record) (*catalog.Definition, error) {
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
		return nil, fmt.Errorf("job %s/%s: the definition it was submitted under cannot be read: %w", rec.Group, rec.Job,
			errors.Join(err, fs.ErrInvalid))
	}
	d.definitions.put(rec.Definition, defs[0])
	return defs[0], nil
}

// newRun prepares the work without starting it. adopted is set for a run that an earlier daemon
// started. begun is called when the work has all the files that it needs.
func (d *Daemon) newRun(op *operation, def *catalog.Definition, params catalog.Params, adopted bool,
	begun func(),
) (*work.Run, error) {
	name := ""
	if at := op.rec.CurrentStep(); at != nil {
		name = at.Name
	}
	return d.prepareRun(op, def, params, name, op.log, adopted, begun)
}

// prepareRun is newRun for a given step, required or optional; "" means a job without steps.
func (d *Daemon) prepareRun(op *operation, def *catalog.Definition, params catalog.Params, step string,
	log *stream.Writer, adopted bool, begun func(),
) (*work.Run, error) {
	job, id := def, op.id()
	if step != "" {
		var err error
		if job, err = d.storedDefinition(op.rec); err != nil {
			return nil, err
		}
	}
	return d.workHost.New(work.Spec{
		Record: op.rec, Job: job, Def: def, Params: params, Step: step, Log: log, Adopted: adopted,
		LaneEnv: d.Lanes.Environ(laneOf(op.rec), op.rec.LaneTurn),
		Begun:   begun, Changed: func() { d.reconcileQueue.enqueueNames(id, 0) }, // no names: only the work changed
		Progressed: d.progressPublisher(op.rec),
	})
}

func (d *Daemon) openLog(op *operation) (*stream.Writer, error) { return d.openLogWriter(op, true) }

// openLogWriter opens the log. If only the daemon writes to it (shared is false), the writer need
// not check the file before each line, and the file is created with the first line.
func (d *Daemon) openLogWriter(op *operation, shared bool) (*stream.Writer, error) {
	if op.log != nil {
		return op.log, nil
	}
	if id := op.id(); !shared {
		op.log = stream.NewLazyWriter(func() (*os.File, error) {
			file, err := d.owner.Output.AppendLog(id, "")
			if err == nil {
				d.waitFollowers.logCreated(id)
			}
			return file, err
		}, stream.WriterOptions{})
		return op.log, nil
	}
	file, err := d.owner.Output.AppendLog(op.id(), "")
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
