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
)

// finish writes down how a run ended. It may be called again when the disk was full.
func (d *Daemon) finish(op *operation) error {
	if err := op.run.diskFailed(); err != nil {
		return err // which ends the daemon: the disk fails, and not the work
	}
	if op.endedBy == "" {
		switch cause := op.run.endCause(); {
		case op.run.left.Load():
			return d.leftRunning(op)
		case op.cancelling != nil:
		case errors.Is(cause, ErrInterrupted), errors.Is(cause, errLeft):
			return d.interrupted(op)
		}
		op.run.takeExit(op.rec, len(op.sides) > 0)
		op.endedBy = d.judgeEnd(op)
		d.tellBreaker(op)
		if op.run.step.def != nil {
			d.stepEnded(op.rec, op.run, op.endedBy)
		}
	}
	if op.endedBy == statefs.CauseDone && op.run.step.def != nil {
		return d.nextStep(op)
	}
	if to, err := statefs.Next(statefs.Running, op.endedBy); err == nil && to.Live() {
		return d.goOn(op, op.endedBy)
	}
	return d.finishAs(op, op.endedBy)
}

// diskFailed returns the error of a disk that did not take what the daemon itself had to write of the work.
func (r *run) diskFailed() error {
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

// judgeEnd says by what cause the operation ends now that its work has.
func (d *Daemon) judgeEnd(op *operation) statefs.Cause {
	r, cause := op.run, op.run.endCause()
	if op.cancelling != nil && !r.endedByItself() && (cause != nil || r.err != nil) {
		return op.cancelCause
	}
	if errors.Is(cause, ErrCancelled) && !r.endedByItself() {
		return statefs.CauseCancel // an earlier daemon had begun to
	}
	err := r.err
	if ended, ok := errors.AsType[*workError](cause); ok && !(final[ended.code] && r.endedByItself()) {
		err = ended // the daemon ended it: the log grew too large, or cannot be written
	}
	if err == nil {
		err = r.failedItems()
	}
	if err == nil {
		err = r.missingOutput()
	}
	if err == nil {
		op.rec.Attempts++
		return statefs.CauseDone
	}
	op.rec.Error = fault(err)
	if r.cancelsStalled(err) {
		op.rec.Attempts++
		op.rec.Reason = "stalled"
		d.say(op, "  Stalled: "+op.rec.Error.Message+", stopping...")
		return statefs.CauseCancel
	}
	return d.failedAttempt(op, err)
}

// endedByItself says that the command had ended before anybody asked it to: an exit that is older than the signal stands, also when
// the cancel came while what the command had started was still being ended.
func (r *run) endedByItself() bool {
	return r.exit != nil && r.exit.Cause == "" && (r.exit.Code >= 0 || r.exit.Signal != "")
}

func (r *run) takeExit(rec *statefs.Record, shared bool) {
	if shared {
		rec.Artifacts = artifactsIn(r.owner.ArtifactsPath(r.id)) // others put theirs there
	} else {
		rec.Artifacts = r.leftArtifacts()
	}
	if r.exit != nil {
		if r.exit.Code >= 0 {
			rec.ExitCode = &r.exit.Code
		}
		rec.Signal = r.exit.Signal
		r.used.add(*r.exit)
	}
	rec.Resources = r.used.onto(rec.Resources)
}

func fault(err error) *statefs.Fault {
	if w, ok := errors.AsType[*workError](err); ok {
		return &statefs.Fault{Code: w.code, Message: w.Error()}
	}
	return &statefs.Fault{Code: "failed", Message: err.Error()}
}

// failedItems says whether failed items make the operation failed.
func (r *run) failedItems() error {
	r.report.mu.Lock()
	defer r.report.mu.Unlock()
	all := r.report.processed + r.report.failed
	switch r.def.FailWhen {
	case catalog.FailAny:
		if r.report.failed > 0 {
			return &workError{"items_failed", fmt.Errorf("%d of %d items failed", r.report.failed, all)}
		}
	case catalog.FailAll:
		if all > 0 && r.report.processed == 0 {
			return &workError{"items_failed", fmt.Errorf("all %d items failed", all)}
		}
	case catalog.FailNever:
	}
	return nil
}

// interrupted puts an operation whose work ended with the daemon where the next daemon finds it: back into the queue, or where
// it was when it is paused.
func (d *Daemon) interrupted(op *operation) error {
	r := op.run
	if err := d.sayBegun(op); err != nil && !statefs.Scarce(err) {
		return err
	}
	op.rec.Interrupts++
	cutOff(op.rec, d.owner.Now())
	if r.def.Restart() == catalog.RestartFail {
		return d.failLost(op)
	}
	op.run = nil
	if op.state == statefs.Running {
		if err := d.requeue(op); err != nil {
			return err
		}
	} else if err := d.durable(op); err != nil {
		return err
	}
	r.commands.taken()
	d.closeLog(op)
	d.looks.want(op.id()) // it begins again, unless the daemon stops
	return r.scratch.remove()
}

// leftRunning lets go of an operation whose command goes on in the hands of its keeper: the next daemon finds it as it is.
func (d *Daemon) leftRunning(op *operation) error {
	if op.noteProgress(); op.unsaved {
		if err := d.durable(op); err != nil {
			return err
		}
	} else if err := d.owner.WriteRecord(op.rec); err != nil {
		return err
	}
	d.closeLog(op)
	d.forget(op)
	d.leftCount.Add(1)
	return nil
}

// finishAs ends an operation by cause: the log is synced, the terminal record is written and synced, and then the marker goes.
func (d *Daemon) finishAs(op *operation, cause statefs.Cause) error {
	if cause != statefs.CauseMainDone && d.endSides(op, func(r *run) { r.end(ErrCancelled) }) {
		return nil // and again when they have ended
	}
	if op.state == statefs.Trailing {
		return d.allDone(op, cause)
	}
	now := d.owner.Now()
	op.noteProgress()
	if len(op.rec.Steps) > 0 && op.rec.Progress != nil {
		op.rec.Progress = progressNow(op.rec, *op.rec.Progress)
	}
	rec := *op.rec // a disk that is full makes this happen again
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
			rec.FinishedAt = &at // no daemon may have been there when the command ended
		}
	}
	if rec.HeartbeatAt != nil && rec.HeartbeatAt.After(*rec.FinishedAt) {
		rec.HeartbeatAt = rec.FinishedAt // what it had written before was read after it ended
	}
	rec.Processed, rec.FailedN = rep.counts()
	rec.Result = result(&rec)
	if err := d.followUp(op, &rec, rep); err != nil {
		return err
	}
	if err := d.address(op, &rec, rep); err != nil {
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
		return d.trail(op, &rec)
	}
	if err := d.end(op, &rec); err != nil {
		return err
	}
	if op.run != nil {
		op.run.commands.taken()
	}
	op.rec = &rec
	op.state = rec.Status
	d.counters.finished.Add(1)
	d.logger.Info("finished", "id", rec.ID, "status", rec.Status, "result", rec.Result, "cause", cause)
	d.forget(op)
	d.tell(op)
	return d.tidy(op)
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

// seal syncs the log and returns the length at which it ends: what a process that could not be found writes later does not
// count.
func (d *Daemon) seal(op *operation) (int64, error) {
	info, err := os.Stat(d.owner.LogPath(op.id()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // it never began
	}
	if err != nil {
		return 0, fmt.Errorf("seal the log of %s: %w", op.id(), err)
	}
	if op.log != nil && d.owner.Durability() == statefs.Power && info.Size() > 0 {
		if err := op.log.Sync(); err != nil {
			return 0, &statefs.SyncError{Path: d.owner.LogPath(op.id()), Err: err}
		}
	}
	return info.Size(), nil
}

// tidy removes what an ended operation needs no longer.
func (d *Daemon) tidy(op *operation) error {
	d.closeLog(op)
	var errs []error
	for _, t := range []*statefs.Taken{op.pausing, op.cancelling} {
		if t != nil {
			errs = append(errs, d.owner.Drop(*t))
		}
	}
	for _, r := range op.taken {
		errs = append(errs, d.owner.Drop(r.Taken))
	}
	errs = append(errs, d.dropEffected(op))
	if op.run == nil || op.run.handler.Run == nil { // a handler has none
		errs = append(errs, scratchOf(d.owner.LogPath(op.id())).remove())
	}
	if op.run == nil { // otherwise this was done when it was looked at
		_ = os.Remove(d.owner.ArtifactsPath(op.id())) // only when it is empty
	}
	return errors.Join(errs...)
}
