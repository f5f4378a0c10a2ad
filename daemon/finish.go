package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// finish records how a run ended. It is called again after a full disk.
func (d *Daemon) finish(op *operation) error {
	if err := op.run.diskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if op.endCause == "" {
		switch cause := op.run.endCause(); {
		case op.run.detached.Load():
			return d.detachOperation(op)
		case op.cancelling != nil:
		case errors.Is(cause, ErrInterrupted), errors.Is(cause, errDetached):
			return d.finishInterrupted(op)
		}
		op.run.takeExit(op.rec, len(op.optionalSteps) > 0)
		op.endCause = d.classifyEnd(op)
		d.reportToBreaker(op)
		if op.run.step.def != nil {
			d.applyStepEnd(op.rec, op.run, op.endCause)
		}
	}
	if op.endCause == statefs.CauseDone && op.run.step.def != nil {
		return d.nextStep(op)
	}
	if to, err := statefs.Next(statefs.Running, op.endCause); err == nil && to.Live() {
		return d.continueAfterFailure(op, op.endCause)
	}
	return d.finishAs(op, op.endCause)
}

// diskError returns the disk error (EIO or EROFS) of a write that the daemon made on behalf of the
// work: item results or the log.
func (r *run) diskError() error {
	r.report.mu.Lock()
	err := r.report.itemErr
	r.report.mu.Unlock()
	if failed, ok := errors.AsType[*workError](r.endCause()); ok && failed.code == "log_failed" {
		err = errors.Join(err, failed.err)
	}
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("write what %s has done: %w", r.id, err)
	}
	return nil
}

// classifyEnd returns the cause by which the operation goes on after its work has ended.
func (d *Daemon) classifyEnd(op *operation) statefs.Cause {
	r, cause := op.run, op.run.endCause()
	if op.cancelling != nil && endedByCancel(r) {
		return op.cancelCause
	}
	if errors.Is(cause, ErrCancelled) && !r.endedByItself() {
		return statefs.CauseCancel // an earlier daemon had begun to cancel it
	}
	err := r.err
	if ended, ok := errors.AsType[*workError](cause); ok && !(finalCodes[ended.code] && r.endedByItself()) {
		err = ended // the daemon ended it: the log grew too large or cannot be written
	}
	if err == nil {
		err = r.failedItems()
	}
	if err == nil {
		err = r.missingOutput()
	}
	partial := err == nil
	if partial {
		err = r.itemsToRetry()
	}
	if err == nil {
		op.rec.Attempts++
		return statefs.CauseDone
	}
	op.rec.Error = fault(err)
	before, line := op.rec.Error, r.lastLine()
	defer func() {
		if op.rec.Error != nil {
			op.rec.Error = r.addLastLine(op.rec, op.rec.Error, before, line) // the log has that line already
		}
	}()
	if r.cancelsStalled(err) {
		op.rec.Attempts++
		op.rec.Reason = "stalled"
		d.logLine(op, "  Stalled: "+op.rec.Error.Message+", stopping...")
		return statefs.CauseCancel
	}
	return d.noteFailedAttempt(op, err, partial)
}

// endedByCancel reports whether a run that has ended while a cancel was requested counts as
// cancelled, not as done.
func endedByCancel(r *run) bool {
	return !r.endedByItself() && (r.endCause() != nil || r.err != nil)
}

// endedByItself reports whether the command exited before the daemon signalled it. Such an exit
// counts even if a cancel came while leftover child processes were still being ended.
func (r *run) endedByItself() bool {
	return r.exit != nil && r.exit.Cause == "" && (r.exit.Code >= 0 || r.exit.Signal != "")
}

func (r *run) takeExit(rec *statefs.Record, shared bool) {
	if shared {
		rec.Artifacts = listArtifacts(r.owner.ArtifactsPath(r.id)) // other runs put their artifacts there too
	} else {
		rec.Artifacts = r.collectArtifacts()
	}
	if r.exit != nil {
		if r.exit.Code >= 0 {
			rec.ExitCode = &r.exit.Code
		}
		rec.Signal = r.exit.Signal
		r.usage.add(*r.exit)
	}
	rec.Resources = r.usage.addTo(rec.Resources)
}

func fault(err error) *statefs.Fault {
	if w, ok := errors.AsType[*workError](err); ok {
		return &statefs.Fault{Code: w.code, Message: w.Error()}
	}
	return &statefs.Fault{Code: "failed", Message: err.Error()}
}

// failedItems returns an error if the failed items make the operation failed.
func (r *run) failedItems() error {
	r.report.mu.Lock()
	defer r.report.mu.Unlock()
	all := r.report.processed + r.report.failed
	switch r.def.FailWhen {
	case catalog.FailAny:
		if r.report.failed > 0 {
			return r.report.itemsError(fmt.Sprintf("%d of %d", r.report.failed, all))
		}
	case catalog.FailAll:
		if all > 0 && r.report.processed == 0 {
			return r.report.itemsError(fmt.Sprintf("all %d", all))
		}
	case catalog.FailNever:
	}
	return nil
}

// itemsToRetry returns an error if items failed and another attempt would do them again, even if
// they do not make the operation failed.
func (r *run) itemsToRetry() error {
	r.report.mu.Lock()
	defer r.report.mu.Unlock()
	if r.def.Work() != catalog.WorkItems || r.def.Retry.MaxAttempts == 1 || r.report.failed == 0 {
		return nil
	}
	return r.report.itemsError(fmt.Sprintf("%d of %d", r.report.failed, r.report.processed+r.report.failed))
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
	if r.def.Restart() == catalog.RestartFail {
		message := withLine(cutOffText+", and the job does not let it begin again", r.lastLine())
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
	r.commands.acknowledge()
	d.closeLog(op)
	d.reconcileQueue.enqueue(op.id()) // it starts again, unless the daemon is stopping
	return r.scratch.remove()
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
	if cause != statefs.CauseMainDone && d.endOptionalSteps(op, func(r *run) { r.end(ErrCancelled) }) {
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
	rec := *op.rec // a copy, because this is repeated after a full disk
	if err := rec.Apply(op.state, cause, now); err != nil {
		return err
	}
	var rep *report
	if op.run != nil && op.run.step.def == nil {
		rep = &op.run.report
	} else {
		rep = d.earlierReport(op)
	}
	rec.Next = ""
	if len(rec.Steps) > 0 && cause != statefs.CauseMainDone && cause != statefs.CauseDone {
		endSteps(&rec, op.state)
	}
	if rec.Status == statefs.Trailing {
		rec.Status, rec.Trailing = statefs.Completed, true
	}
	rec.FinishedAt = &now
	if op.run != nil && op.run.exit != nil {
		if at := op.run.exit.At; rec.StartedAt != nil && at.After(*rec.StartedAt) && at.Before(now) {
			rec.FinishedAt = &at // the command may have ended while no daemon was running
		}
	}
	if rec.HeartbeatAt != nil && rec.HeartbeatAt.After(*rec.FinishedAt) {
		rec.HeartbeatAt = rec.FinishedAt // the heartbeat was read after the command had ended
	}
	rec.Processed, rec.FailedN = rep.counts()
	rec.Result = result(&rec)
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
	rec.Footer = footer(&rec, rep, filepath.Base(d.owner.ItemsPath(op.id())))
	if rec.Trailing {
		return d.beginTrailing(op, &rec)
	}
	if err := d.recordEnd(op, &rec); err != nil {
		return err
	}
	if op.run != nil {
		op.run.commands.acknowledge()
	}
	op.rec = &rec
	op.state = rec.Status
	d.counters.finished.Add(1)
	d.logger.Info("finished", "id", rec.ID, "status", rec.Status, "result", rec.Result, "cause", cause)
	d.untrack(op)
	d.publish(op)
	return d.cleanUp(op)
}

func result(rec *statefs.Record) statefs.Result {
	switch {
	case rec.Status == statefs.Cancelled:
		return statefs.CancelledResult
	case rec.Status == statefs.Failed:
		return statefs.Failure
	case rec.FailedN > 0:
		return statefs.Partial
	}
	return statefs.Success
}

func (r *report) counts() (processed, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processed, r.failed
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
	errs = append(errs, d.dropDoneRequests(op), d.owner.RemoveEmptyLog(op.id()))
	if op.run == nil || op.run.handler.Run == nil { // a handler has no scratch folder
		errs = append(errs, scratchOf(d.owner.LogPath(op.id())).remove())
	}
	if op.run == nil { // otherwise takeExit has done this
		_ = os.Remove(d.owner.ArtifactsPath(op.id())) // fails unless the folder is empty
	}
	return errors.Join(errs...)
}
