package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// finish records how a run ended. It is called again after a full disk.
func (d *Daemon) finish(op *operation) error {
	if err := op.run.DiskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if op.endCause == "" {
		switch cause := op.run.EndCause(); {
		case op.run.Detached():
			return d.detachOperation(op)
		case op.cancelling != nil:
		case errors.Is(cause, ErrInterrupted), errors.Is(cause, work.ErrDetached):
			return d.finishInterrupted(op)
		}
		op.run.TakeExit(op.rec, len(op.optionalSteps) > 0)
		var class catalog.Class
		op.endCause, class = d.classifyEnd(op)
		d.reportToBreaker(op, class)
		if op.run.Step() != nil {
			d.applyStepEnd(op.rec, op.run, op.endCause)
		}
	}
	if op.endCause == statefs.CauseDone && op.run.Step() != nil {
		return d.nextStep(op)
	}
	if to, err := statefs.Next(statefs.Running, op.endCause); err == nil && to.Live() {
		return d.continueAfterFailure(op, op.endCause)
	}
	return d.finishAs(op, op.endCause)
}

// classifyEnd returns the cause by which the operation goes on after its work has ended, and the class
// of its failure, "" if there is none.
func (d *Daemon) classifyEnd(op *operation) (statefs.Cause, catalog.Class) {
	r, cause := op.run, op.run.EndCause()
	if op.cancelling != nil && r.EndedByCancel() {
		return op.cancelCause, ""
	}
	byItself := r.Outcome().EndedByItself()
	if errors.Is(cause, ErrCancelled) && !byItself {
		return statefs.CauseCancel, "" // an earlier daemon had begun to cancel it
	}
	err := r.Outcome().Err
	if ended, ok := errors.AsType[*work.Error](cause); ok && !(finalCodes[ended.Code] && byItself) {
		err = ended // the daemon ended it: the log grew too large or cannot be written
	}
	partial, err := r.Failure(err)
	if err == nil {
		op.rec.Attempts++
		return statefs.CauseDone, ""
	}
	op.rec.Error = fault(err)
	before, line := op.rec.Error, r.LastLine()
	defer func() {
		if op.rec.Error != nil {
			op.rec.Error = d.addLastLine(r, op.rec, op.rec.Error, before, line) // the log has that line already
		}
	}()
	if errors.Is(err, work.ErrStalled) && r.Def().OnStall == catalog.StallCancel {
		op.rec.Attempts++
		op.rec.Reason = "stalled"
		d.logLine(op, "  Stalled: "+op.rec.Error.Message+", stopping...")
		return statefs.CauseCancel, ""
	}
	return d.noteFailedAttempt(op, err, partial)
}

func fault(err error) *statefs.Fault {
	if w, ok := errors.AsType[*work.Error](err); ok {
		return &statefs.Fault{Code: w.Code, Message: w.Error()}
	}
	return &statefs.Fault{Code: "failed", Message: err.Error()}
}

// finishInterrupted leaves an operation whose work ended with the daemon where the next daemon
// finds it: in the queue, or paused if it is paused.
func (d *Daemon) finishInterrupted(op *operation) error {
	r := op.run
	if err := d.recordStart(op); err != nil && !files.DiskFull(err) {
		return err
	}
	op.rec.Interrupts++
	cutOffStep(op.rec, d.owner.Now())
	if r.Def().Restart() == catalog.RestartFail {
		message := withLine(cutOffText+", and the job does not let it begin again", r.LastLine())
		return d.failCutOff(op, statefs.CauseFailed, message)
	}
	op.run = nil
	if op.state == statefs.Running {
		if err := d.requeue(op); err != nil {
			return err
		}
	} else if err := d.persist(op); err != nil {
		return err
	}
	d.closeLog(op)
	d.reconcileQueue.enqueue(op.id()) // it starts again, unless the daemon is stopping
	return r.Forget()
}

// detachOperation untracks an operation whose command continues under its keeper. The next daemon
// finds it in its current state.
func (d *Daemon) detachOperation(op *operation) error {
	if op.copyProgress(); op.unsaved {
		if err := d.persist(op); err != nil {
			return err
		}
	} else if err := d.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	d.closeLog(op)
	d.untrack(op)
	d.detachedCount.Add(1)
	return nil
}

// finishAs ends an operation by cause. It syncs the log, writes and syncs the terminal record, and
// then removes the marker.
func (d *Daemon) finishAs(op *operation, cause statefs.Cause) error {
	if cause != statefs.CauseMainDone && d.endOptionalSteps(op, func(r *work.Run) { r.End(ErrCancelled) }) {
		return nil // called again when the optional steps have ended
	}
	if op.state == statefs.Trailing {
		return d.endTrailing(op, cause)
	}
	now := d.owner.Now()
	op.copyProgress()
	if len(op.rec.Steps) > 0 && op.rec.Progress != nil {
		op.rec.Progress = progressNow(op.rec, *op.rec.Progress)
	}
	var rep *work.Report
	if op.run != nil && op.run.Step() == nil {
		rep = op.run.Report()
	} else {
		rep = d.earlierReport(op)
	}
	rec := *op.rec // a copy, because this is repeated after a full disk
	rec.FinishedAt = &now
	if op.run != nil {
		rec.FinishedAt = new(op.run.Outcome().EndedAt(rec.StartedAt, now))
	}
	rec.Processed, rec.FailedN = rep.Counts()
	if err := decide.End(&rec, op.state, cause, now); err != nil {
		return err
	}
	if err := d.recordFollowUp(op, &rec, rep); err != nil {
		return err
	}
	if err := d.addDeliveries(op, &rec, rep); err != nil {
		return err
	}
	length, err := d.seal(op)
	if err != nil {
		return err
	}
	rec.LogBytes, rec.StalledAt = &length, nil
	if rec.Resources != nil {
		rec.Resources.OutputBytes = length
	}
	rec.Footer = rep.Footer(&rec, filepath.Base(d.owner.ItemsPath(op.id())))
	if rec.Trailing {
		return d.beginTrailing(op, &rec)
	}
	if err := d.recordEnd(op, &rec); err != nil {
		return err
	}
	if op.run != nil {
		op.run.Acknowledge()
	}
	op.rec = &rec
	op.state = rec.Status
	d.counters.finished.Add(1)
	d.logger.Info("finished", "id", rec.ID, "status", rec.Status, "result", rec.Result, "cause", cause)
	d.untrack(op)
	d.publish(op)
	return d.cleanUp(op)
}

// seal syncs the log and returns its final length. Bytes that a process writes later, because it
// could not be found and ended, do not count.
func (d *Daemon) seal(op *operation) (int64, error) {
	info, err := os.Stat(d.owner.LogPath(op.id()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the work never started
	}
	if err != nil {
		return 0, fmt.Errorf("seal the log of %s: %w", op.id(), err)
	}
	if op.log != nil && d.owner.Durability() == statefs.Power && info.Size() > 0 {
		if err := op.log.Open(); err != nil {
			return 0, err // no SyncError: the disk did not fail
		}
		if err := op.log.Sync(); err != nil {
			return 0, &files.SyncError{Path: d.owner.LogPath(op.id()), Err: err}
		}
	}
	return info.Size(), nil
}

// cleanUp removes what a finished operation no longer needs.
func (d *Daemon) cleanUp(op *operation) error {
	d.closeLog(op)
	var errs []error
	for _, t := range []*statefs.TakenRequest{op.pausing, op.cancelling} {
		if t != nil {
			errs = append(errs, d.drop(*t))
		}
	}
	for _, r := range op.pendingRequests {
		errs = append(errs, d.drop(r.TakenRequest))
	}
	errs = append(errs, d.dropDoneRequests(op), d.owner.Output.RemoveEmptyLog(op.id(), ""))
	if op.run == nil || op.run.Def().Work() != catalog.WorkHandler { // a handler has no scratch folder
		errs = append(errs, files.RemoveFolder(work.ScratchFolder(d.owner.LogPath(op.id()))))
	}
	if op.run == nil { // otherwise takeExit has done this
		_ = os.Remove(d.owner.ArtifactsPath(op.id())) // fails unless the folder is empty
	}
	return errors.Join(errs...)
}

// earlierReport returns the report of an operation that ends without a run: the results of its
// earlier runs. For an operation with steps it is that of all steps, with their outputs as the result.
func (d *Daemon) earlierReport(op *operation) *work.Report {
	rep, began := new(work.Report), op.rec.Starts > 0 || op.rec.RetryOf != nil
	if len(op.rec.Steps) > 0 {
		if began {
			if err := rep.AddItems(d.owner, op.rec); err != nil {
				d.logger.Error("item results are not in the footer", "id", op.id(), "error", err)
			}
		}
		rep.AddOutputs(op.rec.Steps)
		return rep
	}
	if !began {
		return rep
	}
	def, params, err := d.definition(op.rec)
	if err != nil || def.Work() != catalog.WorkItems {
		return rep // a handler may have repeated its items in each run
	}
	rep.SetTotal(def.Total(params))
	if err := rep.AddItems(d.owner, op.rec); err != nil {
		d.logger.Error("item results of earlier runs are not in the footer", "id", op.id(), "error", err)
	}
	return rep
}
