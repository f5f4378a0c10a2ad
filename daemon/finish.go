package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/trigger"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// ends makes operations end: it seals the log, records the end, and starts what follows from it.
type ends struct {
	*core

	// Deliveries brings results to targets.
	Deliveries *delivery.Deliveries
	// Trigger submits by schedule, from new/, and what follows.
	Trigger *trigger.Trigger
	// detachedCount is how many operations continue without the daemon.
	detachedCount atomic.Int64
}

// finisher records the end of a run, and what follows it: another attempt, or the end of the operation.
type finisher struct {
	*core
	publisher *publisher
	ends      *ends
	starts    *starts
	optional  *optional
}

// endOf returns how a run ended.
func endOf(r *work.Run) decide.WorkEnded {
	cause := r.EndCause()
	_, err := failureOf(r)
	o := decide.WorkEnded{
		Detached:    r.Detached(),
		Interrupted: errors.Is(cause, ErrInterrupted) || errors.Is(cause, work.ErrDetached),
		ByCancel:    r.EndedByCancel(),
		Failed:      err != nil, StallCancels: errors.Is(err, work.ErrStalled) && r.Def().OnStall == catalog.StallCancel,
	}
	if !r.Outcome().EndedByItself() {
		o.EndedBy = work.CauseOf(cause)
	}
	return o
}

// failureOf returns why a run failed, nil if it did not. It is partial if only items failed, which does not make the
// operation failed.
func failureOf(r *work.Run) (partial bool, err error) {
	err = r.Outcome().Err
	byItself := r.Outcome().EndedByItself()
	if ended, ok := errors.AsType[*work.Error](r.EndCause()); ok && !(finalCodes[ended.Code] && byItself) {
		err = ended // the daemon ended it: the log grew too large or cannot be written
	}
	return r.Failure(err)
}

// noteEnd records the end of a run that has not failed, or was ended.
func (f *finisher) noteEnd(op *operation, answer decide.Answer) error {
	op.run.TakeExit(op.rec, len(op.optionalSteps) > 0)
	if answer.Counts {
		op.rec.Attempts++
	}
	f.setEndCause(op, answer.Cause, "")
	return nil
}

// noteStalledEnd records the end of a run that is cancelled because it had stalled.
func (f *finisher) noteStalledEnd(op *operation, answer decide.Answer) error {
	op.run.TakeExit(op.rec, len(op.optionalSteps) > 0)
	_, err := failureOf(op.run)
	failed := fault(err)
	op.rec.Attempts++
	op.rec.Reason = "stalled"
	f.logLine(op, "  Stalled: "+failed.Message+", stopping...")
	op.rec.Error = f.optional.addLastLine(op.run, op.rec, failed, failed, op.run.LastLine())
	f.setEndCause(op, answer.Cause, "")
	return nil
}

// noteFailedEnd records the end of a run that failed.
func (f *finisher) noteFailedEnd(op *operation) error {
	op.run.TakeExit(op.rec, len(op.optionalSteps) > 0)
	partial, err := failureOf(op.run)
	op.rec.Error = fault(err)
	before, line := op.rec.Error, op.run.LastLine()
	cause, class := f.noteFailedAttempt(op, err, partial)
	if op.rec.Error != nil {
		op.rec.Error = f.optional.addLastLine(op.run, op.rec, op.rec.Error, before, line) // the log has that line already
	}
	f.setEndCause(op, cause, class)
	return nil
}

// setEndCause notes the cause by which an operation goes on without its run, and the class of the failure of the run,
// "" if there is none.
func (f *finisher) setEndCause(op *operation, cause statefs.Cause, class catalog.Class) {
	op.endCause = cause
	f.reportToBreaker(op, class)
	if op.run.Step() != nil {
		f.applyStepEnd(op.rec, op.run, op.endCause)
	}
}

func fault(err error) *statefs.Fault {
	if w, ok := errors.AsType[*work.Error](err); ok {
		return &statefs.Fault{Code: w.Code, Message: w.Error()}
	}
	return &statefs.Fault{Code: "failed", Message: err.Error()}
}

// finishInterrupted leaves an operation whose work ended with the daemon where the next daemon
// finds it: a cause moves it to the queue.
func (f *finisher) finishInterrupted(op *operation, cause statefs.Cause) error {
	if err := f.noteInterruption(op); err != nil {
		return err
	}
	r := op.run
	op.run = nil
	if cause != "" {
		if err := f.transitionDurably(op, cause); err != nil {
			return err
		}
	} else if err := f.persist(op); err != nil {
		return err
	}
	f.closeLog(op)
	f.reconcileQueue.enqueue(op.id()) // it starts again, unless the daemon is stopping
	return r.Forget()
}

// noteInterruption records that the work ended with the daemon.
func (f *finisher) noteInterruption(op *operation) error {
	if err := f.starts.recordStart(op); err != nil && !files.DiskFull(err) {
		return err
	}
	op.rec.Interrupts++
	cutOffStep(op.rec, f.owner.Now())
	return nil
}

// giveUpInterrupted ends an operation whose work ended with the daemon and must not begin again.
func (f *finisher) giveUpInterrupted(op *operation, cause statefs.Cause) error {
	if err := f.noteInterruption(op); err != nil {
		return err
	}
	return f.failCutOff(op, cause, withLine(cutOffText+", and the job does not let it begin again", op.run.LastLine()))
}

// detachOperation untracks an operation whose command continues under its keeper. The next daemon
// finds it in its current state.
func (e *ends) detachOperation(op *operation) error {
	if op.copyProgress(); op.unsaved {
		if err := e.persist(op); err != nil {
			return err
		}
	} else if err := e.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	e.closeLog(op)
	e.untrack(op)
	e.detachedCount.Add(1)
	return nil
}

// finishAs ends an operation by cause. It syncs the log, writes and syncs the terminal record, and
// then removes the marker.
func (e *ends) finishAs(op *operation, cause statefs.Cause) error {
	if cause != statefs.CauseMainDone && e.endOptionalSteps(op, func(r *work.Run) { r.End(ErrCancelled) }) {
		return nil // called again when the optional steps have ended
	}
	if op.state == statefs.Trailing {
		return e.endTrailing(op, cause)
	}
	now := e.owner.Now()
	op.copyProgress()
	if len(op.rec.Steps) > 0 && op.rec.Progress != nil {
		op.rec.Progress = progressNow(op.rec, *op.rec.Progress)
	}
	var rep *work.Report
	if op.run != nil && op.run.Step() == nil {
		rep = op.run.Report()
	} else {
		rep = e.earlierReport(op)
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
	if err := e.recordFollowUp(op, &rec, rep); err != nil {
		return err
	}
	if err := e.addDeliveries(op, &rec, rep); err != nil {
		return err
	}
	length, err := e.seal(op)
	if err != nil {
		return err
	}
	rec.LogBytes, rec.StalledAt = &length, nil
	if rec.Resources != nil {
		rec.Resources.OutputBytes = length
	}
	rec.Footer = rep.Footer(&rec, filepath.Base(e.owner.ItemsPath(op.id())))
	if rec.Trailing {
		return e.beginTrailing(op, &rec)
	}
	if err := e.recordEnd(op, &rec); err != nil {
		return err
	}
	if op.run != nil {
		op.run.Acknowledge()
	}
	op.rec = &rec
	op.state = rec.Status
	e.counters.finished.Add(1)
	e.logger.Info("finished", "id", rec.ID, "status", rec.Status, "result", rec.Result, "cause", cause)
	e.untrack(op)
	return e.cleanUp(op)
}

// seal syncs the log and returns its final length. Bytes that a process writes later, because it
// could not be found and ended, do not count.
func (e *ends) seal(op *operation) (int64, error) {
	info, err := os.Stat(e.owner.LogPath(op.id()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the work never started
	}
	if err != nil {
		return 0, fmt.Errorf("seal the log of %s: %w", op.id(), err)
	}
	if op.log != nil && e.owner.Durability() == statefs.Power && info.Size() > 0 {
		if err := op.log.Open(); err != nil {
			return 0, err // no SyncError: the disk did not fail
		}
		if err := op.log.Sync(); err != nil {
			return 0, &files.SyncError{Path: e.owner.LogPath(op.id()), Err: err}
		}
	}
	return info.Size(), nil
}

// cleanUp removes what a finished operation no longer needs.
func (e *ends) cleanUp(op *operation) error {
	e.closeLog(op)
	var errs []error
	for _, r := range op.unsettled() {
		errs = append(errs, e.drop(op, r))
	}
	op.pendingRequests, op.awaiting = nil, nil
	errs = append(errs, e.dropDoneRequests(op), e.owner.Output.RemoveEmptyLog(op.id(), ""))
	e.waiters.Settle(op.id(), func(r effect.Request) (effect.Outcome, bool) { return outcomeOfEnd(r, op.rec), true })
	if op.run == nil || op.run.Def().Work() != catalog.WorkHandler { // a handler has no scratch folder
		errs = append(errs, files.RemoveFolder(work.ScratchFolder(e.owner.LogPath(op.id()))))
	}
	if op.run == nil { // otherwise the end of the run has done this
		_ = os.Remove(e.owner.ArtifactsPath(op.id())) // fails unless the folder is empty
	}
	return errors.Join(errs...)
}

// earlierReport returns the report of an operation that ends without a run: the results of its
// earlier runs. For an operation with steps it is that of all steps, with their outputs as the result.
func (e *ends) earlierReport(op *operation) *work.Report {
	rep, began := new(work.Report), op.rec.Starts > 0 || op.rec.RetryOf != nil
	if len(op.rec.Steps) > 0 {
		if began {
			if err := rep.AddItems(e.owner, op.rec); err != nil {
				e.logger.Error("item results are not in the footer", "id", op.id(), "error", err)
			}
		}
		rep.AddOutputs(op.rec.Steps)
		return rep
	}
	if !began {
		return rep
	}
	def, params, err := e.definition(op.rec)
	if err != nil || def.Work() != catalog.WorkItems {
		return rep // a handler may have repeated its items in each run
	}
	rep.SetTotal(def.Total(params))
	if err := rep.AddItems(e.owner, op.rec); err != nil {
		e.logger.Error("item results of earlier runs are not in the footer", "id", op.id(), "error", err)
	}
	return rep
}

// An operation has ended when its required steps are done: the record is terminal with trailing
// set, the index holds it, and waiting clients get the result. Its marker is trailing until the
// last optional step has ended.
//
//	record: completed, trailing ─▶ sync ─▶ index ─▶ rename to ID.trailing ─▶ ...
//	... ─▶ record: all done ─▶ sync ─▶ remove the marker
//
// The record is written first, so after a crash it decides what happens to the marker (statefs.FinishingOptional).

// finishRequiredSteps ends an operation whose required steps are done.
func (s *starts) finishRequiredSteps(op *operation, x seen, _ decide.Answer) error {
	def := x.ahead.def
	noteMilestone(op.rec, def)
	op.rec.Reason, op.rec.Error = "", nil
	if len(op.optionalSteps) > 0 || def.Graph().HasUnfinishedOptional(op.rec.Steps) {
		return s.ends.finishAs(op, statefs.CauseMainDone)
	}
	return s.ends.finishAs(op, statefs.CauseDone)
}

// beginTrailing makes an end durable while optional steps continue.
func (e *ends) beginTrailing(op *operation, rec *statefs.Record) error {
	from := op.state
	if err := e.recordEnd(op, rec); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endCause, op.unsaved = rec, nil, "", false
	e.counters.finished.Add(1)
	e.logger.Info("finished; optional steps continue", "id", rec.ID, "result", rec.Result, "from", from)
	e.setState(op, statefs.Trailing)
	e.releaseWaiters(op)
	e.closeLog(op)
	e.committed(op)
	e.reconcileQueue.enqueue(op.id())
	if ended != nil {
		return errors.Join(e.dropDoneRequests(op), ended.Forget())
	}
	return e.dropDoneRequests(op)
}

// trail runs the optional steps of a trailing operation, and ends it when there are no more.
func (dc *decisions) trail(op *operation) error {
	if err := dc.optional.beginOptionalSteps(op); err != nil {
		return err
	}
	optional := decide.OptionalSeen{Running: len(op.optionalSteps) > 0}
	if !optional.Running {
		def, err := dc.storedDefinition(op.rec)
		if isTransient(err) {
			return err
		}
		optional.Unfinished = err == nil && def.Graph().HasUnfinishedOptional(op.rec.Steps)
	}
	_, err := dc.judge(op, seen{Observation: optional})
	return err
}

// endTrailing ends a trailing operation.
func (e *ends) endTrailing(op *operation, cause statefs.Cause) error {
	rec := *op.rec
	if err := decide.EndTrailing(&rec, cause, e.owner.Now()); err != nil {
		return err
	}
	if len(rec.Artifacts) == 0 {
		rec.Artifacts = work.ListArtifacts(e.owner.ArtifactsPath(op.id()))
	}
	if err := e.commit(op.id(), change{rec: &rec, from: op.state}, writeEnd, removeMarker); err != nil {
		return err
	}
	op.rec = &rec
	op.state = rec.Status
	e.logger.Info("optional steps ended", "id", rec.ID, "cause", cause)
	e.untrack(op)
	return e.cleanUp(op)
}

// takeOverTrailing adopts a trailing operation.
func (rc *reconciler) takeOverTrailing(rec *statefs.Record, states []statefs.State) error {
	if err := rc.indexEnded(rec.ID); err != nil {
		return err
	}
	if len(states) > 1 {
		for _, state := range states {
			if state != statefs.Trailing {
				if err := rc.commit(rec.ID, change{from: state}, removeExtra); err != nil {
					return err
				}
			}
		}
		return errMoved
	}
	if states[0] != statefs.Trailing {
		if err := rc.commit(rec.ID, change{from: states[0], to: statefs.Trailing}, moveMarker); err != nil {
			return err
		}
	}
	marker, _, err := rc.owner.Identify(statefs.MarkerName(rec.ID, statefs.Trailing))
	if errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	op := newOperation(rec)
	op.shown.Marker = marker // not in the table yet
	rc.setState(op, statefs.Trailing)
	if err := rc.optional.adoptOptionalSteps(op); err != nil {
		return err
	}
	op.feed.end = rec.FinishedSeq
	rc.track(op)
	rc.live.End(op.id())
	rc.ends.releaseWaiters(op)
	return nil
}

// releaseWaiters lets equal submits start a new operation, and enqueues the operations that wait
// for this one.
func (e *ends) releaseWaiters(op *operation) {
	e.config.Intake.Forget(op.rec)
	e.enqueueChildren(op.id())
}

// endWork ends the work of an operation for a request, without a grace period if the effect is decide.KillWork. The
// request takes effect when the work has ended. The code of a handler cannot be killed: its context ends.
func (e *ends) endWork(op *operation, r *request, answer decide.Answer) error {
	if answer.Line != "" {
		e.logLine(op, answer.Line)
	}
	op.await(decide.EndWork, r, answer.Cause)
	end, why := (*work.Run).End, work.ErrorOf(answer.Cause)
	if answer.Effect == decide.KillWork {
		end = (*work.Run).Kill
	}
	e.endOptionalSteps(op, func(r *work.Run) { end(r, why) })
	if op.run != nil {
		end(op.run, why)
	}
	return nil
}

// complete makes the transition of an awaited request; without a cause there is nothing more to do.
func (e *ends) complete(op *operation, answer decide.Answer) error {
	r := op.awaiting[answer.Awaited]
	if answer.Cause != "" {
		if err := e.transition(op, answer.Cause); err != nil {
			return err
		}
		r.carriedOut = true
	}
	op.doneRequests = append(op.doneRequests, r)
	delete(op.awaiting, answer.Awaited)
	e.reconcileQueue.enqueue(op.id())
	return nil
}
