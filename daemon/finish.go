package daemon

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
)

// finisher records the end of a run, and what follows it: another attempt, or the end of the operation.
type finisher struct {
	*core
	publisher *publisher
	ends      *ends
	starts    *starts
	optional  *optional
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
	op.rec.Error = addLastLine(op.run, op.rec, failed, failed, op.run.LastLine(), f.owner.Now())
	f.setEndCause(op, answer.Cause, "")
	return nil
}

// recordPhase writes the record at once when the phase changed: a phase is a milestone, unlike a
// number that changes every second. It also records the PID of a command, once the command has run
// for some time, so that short commands do not cost a write.
func (f *finisher) recordPhase(op *operation) error {
	pid, settled := op.run.PID()
	if (!settled || op.rec.PID == pid) && op.run.PhaseRecorded(op.rec) {
		return nil
	}
	if !op.unrecordedStart.IsZero() {
		return f.starts.recordStart(op)
	}
	op.copyProgress()
	return f.commit(op.id(), change{rec: op.rec}, writeRecord)
}

// recordStall records that the work has stalled or moves again.
func (f *finisher) recordStall(op *operation) error {
	if op.rec.StalledAt != nil {
		op.rec.StalledAt = nil
		f.logger.Info("work moves again", "id", op.id())
	} else {
		op.rec.StalledAt = new(f.owner.Now())
		f.logger.Warn("work stalled: no output and no progress", "id", op.id(), "for", op.run.StallAfter(),
			"action", op.run.Def().OnStall)
	}
	op.copyProgress()
	if err := f.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	f.publishRecord(op)
	f.publisher.publishStall(op.rec)
	// This is no transition, so touch the marker: programs that watch the operation then read it again.
	if err := f.commit(op.id(), change{to: op.state}, touchMarker); err != nil {
		f.logger.Warn("marker not touched: watchers of jobs/ notice late that work stalled or moves again", "id", op.id(), "error", err)
	}
	return nil
}

// endStalled records that the work has stalled, and ends it.
func (f *finisher) endStalled(op *operation) error {
	if err := f.recordStall(op); err != nil {
		return err
	}
	op.run.End(&work.Error{Code: "stalled", Err: fmt.Errorf("%w for %s", work.ErrStalled, op.run.StallAfter())})
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
		op.rec.Error = addLastLine(op.run, op.rec, op.rec.Error, before, line, f.owner.Now()) // the log has that line already
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

// reportToBreaker reports the end of an operation's run to the breaker of its lane, with the class of
// its failure.
func (f *finisher) reportToBreaker(op *operation, class catalog.Class) {
	v, names, exit := lanes.NoVerdict, []string(nil), ""
	switch {
	case op.endCause == statefs.CauseDone:
		v = lanes.Success
	case op.rec.Error != nil && class != catalog.ClassWarn:
		v, names = lanes.Failure, []string{op.rec.Error.Code, string(class)}
		if op.rec.ExitCode != nil && *op.rec.ExitCode != 0 {
			exit = strconv.Itoa(*op.rec.ExitCode)
			names = append(names, exit)
		}
	}
	f.Lanes.RunEnded(laneOf(op.rec), op.id(), v, exit, names...)
}

// noteFailedAttempt records in op.rec that a run failed with err, logs it, and returns the cause of
// the operation's next transition, and the class of the failure. A run is partial when only items
// failed, which does not make the operation failed.
func (f *finisher) noteFailedAttempt(op *operation, err error, partial bool) (statefs.Cause, catalog.Class) {
	rec, r := op.rec, op.run
	before := rec.Error.Code // classOf may change the code
	class := classOf(r, rec, err)
	failed := attemptOf(r, rec.Error.Code, class, partial, before)
	failed.Step = r.Step() != nil
	at := r.Outcome().EndedAt(new(time.Time), f.owner.Now())
	a := f.judgeAttempt(failed, r.Def(), runStartedAt(rec), at, &rec.Attempts, &rec.Backoff, &rec.DiedAt)
	warns := class == catalog.ClassWarn
	if !a.Counts && warns {
		rec.Warnings++
	}
	if a.Effect == decide.PlanRetry {
		a = f.planRetry(op, a, failed, err)
	} else if a.Cause == statefs.CauseRescued {
		a.Line = fmt.Sprintf("  Cut off: %s. It begins again.", rec.Error.Message)
	}
	switch a.Cause { //nolint:exhaustive // other causes end the operation
	case statefs.CauseDone:
		rec.Error = nil
	case statefs.CauseNeedsPerson:
		rec.Reason = "manual"
		if a.Crashed {
			rec.Reason = crashReason(f.config.crashLimitOf(r.Def()))
		}
		rec.RedoFrom = r.Number() + 1
	case statefs.CauseRescued, statefs.CauseRetryLater:
		if a.Counts || warns {
			rec.RedoFrom = r.Number() + 1
		}
	}
	if a.Line == "" && a.Cause != statefs.CauseDone {
		a.Line = attemptLine(rec, a)
	}
	if a.Line != "" {
		f.logLine(op, a.Line)
	}
	return a.Cause, class
}

// attemptLine returns the log line of a failed attempt that is not retried automatically.
func attemptLine(rec *statefs.Record, a decide.Answer) string {
	if a.Cause != statefs.CauseNeedsPerson {
		return "  ERROR: " + rec.Error.Message
	}
	if a.Crashed {
		return crashLine(rec)
	}
	if len(rec.Steps) > 0 {
		return needsPersonLine(rec, rec.CurrentStep())
	}
	return fmt.Sprintf("  ERROR: %s. A person must act: mend it, then 'jobdir retry %s', or 'jobdir cancel' it.",
		rec.Error.Message, rec.ID)
}

// goOn detaches an operation from its failed run and makes the transition for cause; the operation
// stays live. The record is durable before the marker is renamed and names the next state, so the
// result of the attempt is neither lost nor counted twice.
func (f *finisher) goOn(op *operation, cause statefs.Cause) error {
	op.copyProgress()
	if r := op.awaiting[decide.EndWork]; r != nil && r.cause == cause {
		r.carriedOut = true
	}
	return f.leaveRun(op, cause)
}

// leaveRun detaches an operation from its run and makes the transition for cause.
func (f *finisher) leaveRun(op *operation, cause statefs.Cause) error {
	if err := f.transition(op, cause); err != nil {
		return err
	}
	return f.starts.finishRun(op)
}

// completeStep completes an awaited request between two steps.
func (f *finisher) completeStep(op *operation, answer decide.Answer) error {
	if err := f.ends.complete(op, answer); err != nil {
		return err
	}
	return f.starts.finishRun(op)
}

// stayPaused detaches an operation from its run. It starts again once it is resumed and due. There is no cause if the
// step of the run is done.
func (f *finisher) stayPaused(op *operation, cause statefs.Cause) error {
	if cause != "" {
		op.copyProgress()
	}
	if cause == statefs.CauseRescued {
		op.rec.Rescues++
		op.rec.DueAt = new(f.owner.Now()) // DueAt records that the run is over
	}
	op.unsaved = true
	return f.starts.finishRun(op)
}

// planRetry finds out when an operation can be tried again after a failed attempt, and returns the
// cause of its next transition with the log line: retry later, with the time in the record; retry at
// once; or no retry, because a time limit would be over by then.
func (f *finisher) planRetry(op *operation, a decide.Answer, failed decide.AttemptFailed, err error) decide.Answer {
	rec, now := op.rec, f.owner.Now()
	maxAttempts := op.run.Def().Retry.MaxAttempts
	what := fmt.Sprintf("Attempt %d of %d failed", rec.Attempts, maxAttempts)
	if maxAttempts == catalog.UnboundedAttempts {
		what = fmt.Sprintf("Attempt %d failed", rec.Attempts)
	}
	if failed.Class == catalog.ClassWarn {
		what = fmt.Sprintf("Run %d came to nothing, which counts as no attempt", rec.Run)
	}
	rec.Backoff++
	wait := retryDelay(op.run, err, failed.Class, rec.Backoff)
	limit := f.exceededLimit(op, now, wait)
	a.Cause = decide.Decide(f.snapshot(op), decide.RetryPlanned{
		Partial: failed.Partial, Step: failed.Step, Exceeds: limit != "", Waits: wait > 0,
	}, decide.Env{}).Cause
	what = fmt.Sprintf("  %s: %s. It is tried again", what, rec.Error.Message)
	switch {
	case a.Cause == statefs.CauseDone:
		a.Line = fmt.Sprintf("  %s. They are not done again: %s would be over by then.", rec.Error.Message, limit)
	case limit != "":
		a.Line = fmt.Sprintf("  ERROR: %s. It is not tried again: %s would be over by then.", rec.Error.Message, limit)
	case a.Cause == statefs.CauseRescued:
		a.Line = what + "."
	default:
		due := now.Add(wait)
		rec.DueAt = &due
		a.Line = fmt.Sprintf("%s in %s, at %s.", what, formatWait(wait), due.Format("2006-01-02 15:04:05"))
	}
	return a
}

// exceededLimit names the time limit of an operation that a retry after wait would exceed, "" for
// none. It uses the retention clock, which does not follow a forward jump of the clock at once,
// because the decision is final.
func (f *finisher) exceededLimit(op *operation, now time.Time, wait time.Duration) string {
	rec, def := op.rec, op.run.Def()
	if rec.RetryUntil == nil && def.Retry.For > 0 {
		rec.RetryUntil = new(now.Add(def.Retry.For - rec.ActiveTime(now)))
	}
	begins := f.retentionClock.now(now, f.uptime()).Add(wait)
	switch t := f.deadlinesOf(op); {
	case rec.RetryUntil != nil && begins.After(*rec.RetryUntil):
		return "retry_for (" + param.FormatDuration(def.Retry.For) + ")"
	case t.expiry > 0 && f.uptime()+wait >= t.expiry:
		return "its deadline (" + param.FormatDuration(def.Deadline) + " from the submit)"
	}
	return ""
}

// formatWait formats a delay with the precision that people need.
func formatWait(wait time.Duration) string {
	switch {
	case wait >= 10*time.Second:
		return param.FormatDuration(wait.Round(time.Second))
	case wait >= time.Second:
		return wait.Round(100 * time.Millisecond).String()
	}
	return wait.Round(time.Millisecond).String()
}

// crashReason returns the reason for the record of an operation whose crash limit is used up.
func crashReason(limit catalog.CrashLimit) string { return "crash_limit: " + crashText(limit) }

// runStartedAt returns when the current run of an operation started.
func runStartedAt(rec *statefs.Record) time.Time {
	if at := rec.CurrentStep(); at != nil && at.StartedAt != nil {
		return *at.StartedAt
	}
	if rec.StartedAt != nil {
		return *rec.StartedAt
	}
	return rec.CreatedAt
}

// applyStepEnd records in a step how its run ended. It is called once per run, before the record is
// written.
func (f *finisher) applyStepEnd(rec *statefs.Record, r *work.Run, cause statefs.Cause) {
	rec.Steps = steps.Clone(rec.Steps)
	at := steps.Find(rec.Steps, r.StepName())
	if at == nil {
		return
	}
	at.EndedAt, at.LogTo = new(r.Outcome().EndedAt(at.StartedAt, f.owner.Now())), logSize(r.LogPath())
	change, verdict := stepCauses[cause]
	if !verdict {
		change = steps.CauseCutOff
	}
	if change == steps.CauseDone {
		at.Outputs, at.ErrorCode, at.ErrorMessage = r.Report().Members(r.Step().Outputs), "", ""
	} else if rec.Error != nil {
		at.ErrorCode, at.ErrorMessage = rec.Error.Code, rec.Error.Message
	}
	if change != steps.CauseDone && rec.RedoFrom == r.Number()+1 {
		at.RedoFrom = rec.RedoFrom
	}
	if change == steps.CauseCutOff {
		at.ErrorCode, at.ErrorMessage = "", ""
	}
	if err := at.Apply(change); err != nil {
		f.logger.Error("the end of a step does not fit its status", "id", rec.ID, "step", at.Name, "error", err)
	}
}

// stepCauses maps the cause of an operation's transition to that of its step; on any other cause
// the step is cut off.
var stepCauses = map[statefs.Cause]steps.Cause{
	statefs.CauseDone: steps.CauseDone, statefs.CauseRetryLater: steps.CauseRetryLater,
	statefs.CauseRescued:     steps.CauseRetryLater,
	statefs.CauseNeedsPerson: steps.CauseNeedsPerson,
}

// handleCutOff moves an operation whose work was cut off to the state that the restart rule and the
// crash limit of its job give. The record is durable before the marker moves, so that a crash in
// between counts the death once.
func (f *finisher) handleCutOff(op *operation) error {
	rec := op.rec
	cause := statefs.CauseRescued
	if def, _, err := f.currentWork(rec); err == nil { // without a definition the start fails and reports it
		now := f.owner.Now()
		a := f.judgeAttempt(decide.AttemptFailed{CutOff: true, Uncounted: op.wasPaused()}, def, runStartedAt(rec), now,
			&rec.Attempts, &rec.Backoff, &rec.DiedAt)
		if a.Counts {
			addFailedAttempt(rec, statefs.FailedAttempt{
				Run: runNumber(rec), Step: currentStepName(rec), Code: work.CodeCutOff,
				Message: f.starts.cutOffMessage(rec.ID, def, rec.CurrentStep(), cutOffText), At: now,
			})
			redoFailed(rec)
		}
		if cause = a.Cause; cause != statefs.CauseRescued {
			return f.giveUpCutOff(op, cause, def)
		}
	}
	cutOffStep(rec, f.owner.Now())
	row, err := statefs.TransitionFrom(op.state, cause)
	if err != nil {
		return err
	}
	err = f.makeTransition(op, row)
	if files.DiskFull(err) { // with a full disk the operation can still be controlled
		op.rec.Rescues++
		row.Order = statefs.MarkerFirst
		return f.makeTransition(op, row)
	}
	return err
}

// giveUpCutOff ends an operation whose work was cut off and does not begin again, or leaves it to a
// person.
func (f *finisher) giveUpCutOff(op *operation, cause statefs.Cause, def *catalog.Definition) error {
	message := cutOffText
	switch {
	case cause == statefs.CauseNeedsPerson:
		redoFailed(op.rec)
		op.rec.Reason = crashReason(f.config.crashLimitOf(def))
	case def.Restart() == catalog.RestartFail:
		message += ", and the job does not let it begin again"
	default:
		message += fmt.Sprintf(", and its attempts (%d) are used up", def.Retry.MaxAttempts)
	}
	return f.failCutOff(op, cause, f.starts.cutOffMessage(op.id(), def, op.rec.CurrentStep(), message))
}

// failCutOff ends an operation that must not begin again, or leaves it to a person.
func (f *finisher) failCutOff(op *operation, cause statefs.Cause, message string) error {
	op.rec.Error = &statefs.Fault{Code: work.CodeCutOff, Message: message}
	if op.rec.CurrentStep() != nil {
		reason := "manual"
		if cause == statefs.CauseNeedsPerson {
			reason = op.rec.Reason
		}
		return f.starts.leaveStepToPerson(op, &work.Error{Code: work.CodeCutOff, Err: errors.New(message)}, reason)
	}
	if cause == statefs.CauseNeedsPerson {
		f.logLine(op, crashLine(op.rec))
		if err := f.transition(op, cause); err != nil {
			return err
		}
		return f.starts.settleMove(op)
	}
	f.logLine(op, "  ERROR: "+message)
	return f.ends.finishAs(op, cause)
}

// redoFailed makes the next run repeat the items that failed in the last one.
func redoFailed(rec *statefs.Record) {
	rec.RedoFrom = runNumber(rec) + 1
	if rec.CurrentStep() != nil {
		rec.Steps = steps.Clone(rec.Steps)
		rec.CurrentStep().RedoFrom = rec.RedoFrom
	}
}
