package daemon

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// finalCodes are the error codes that end an operation whatever its job configures.
var finalCodes = map[string]bool{"queue_timeout": true, "deadline_exceeded": true}

// judgeAttempt judges a run of def that failed or was cut off, and adds it to the counts of its operation or step.
func (c *core) judgeAttempt(failed decide.AttemptFailed, def *catalog.Definition, began, ended time.Time,
	attempts, backoff *int, diedAt *[]time.Time,
) decide.Answer {
	limit := c.config.crashLimitOf(def)
	if ended.Sub(began) > limit.Within {
		*backoff = 0
	}
	deaths := addDeath(*diedAt, ended, limit)
	answer := decide.Decide(decide.Snapshot{}, failed, decide.Env{
		Restart: def.Restart(), Attempts: *attempts, MaxAttempts: def.Retry.MaxAttempts, Deaths: len(deaths), Burst: limit.Burst,
	})
	if answer.Dies {
		*diedAt = deaths
	}
	if answer.Counts {
		*attempts++
	}
	return answer
}

// attemptOf returns a failed run as a decision sees it: with the code of its error, which was another one before the
// error patterns of the job were applied.
func attemptOf(r *work.Run, code string, class catalog.Class, partial bool, before string) decide.AttemptFailed {
	return decide.AttemptFailed{
		Signal: code == "signal", CutOff: work.CutOff(code), TimeOver: finalCodes[code], Class: class, Partial: partial,
		Uncounted: r.CutOffWhilePaused(before),
	}
}

// noteFailedAttempt records in op.rec that a run failed with err, logs it, and returns the cause of
// the operation's next transition, and the class of the failure. A run is partial when only items
// failed, which does not make the operation failed.
func (f *finisher) noteFailedAttempt(op *operation, err error, partial bool) (statefs.Cause,
	catalog.Class,
) {
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

// classOf returns the class of a failure. A matching error pattern of the job decides first, then
// the class that a handler gives, then the job's exit_codes.
func classOf(r *work.Run, rec *statefs.Record, err error) catalog.Class {
	code := rec.Error.Code
	if class := matchErrorPattern(r, rec); class != "" {
		return class
	}
	if f, ok := errors.AsType[*AttemptError](err); ok && f.Class != "" {
		return f.Class
	}
	if class := r.Def().ExitCodes.Class(code, rec.ExitCode); class != "" {
		return class
	}
	return r.Def().ExitCodes.Class(rec.Error.Code, rec.ExitCode)
}

// unexplainedCodes are the error codes that describe how a command ended but not why.
var unexplainedCodes = map[string]bool{
	"exit_code": true, "signal": true, "lost": true, "keeper_died": true, "timeout": true, "stalled": true,
	"deadline_exceeded": true,
}

// addLastLine records a failed attempt, and appends the command's last line to its error unless an
// error pattern of the job has already chosen a line. before is the error before the patterns were
// applied.
func (o *optional) addLastLine(r *work.Run, rec *statefs.Record, failed, before *statefs.Fault,
	line string,
) *statefs.Fault {
	if unexplainedCodes[before.Code] && failed.Message == before.Message {
		failed = &statefs.Fault{Code: failed.Code, Message: withLine(failed.Message, line)}
	}
	addFailedAttempt(rec, statefs.FailedAttempt{
		Run: r.Number(), Step: r.StepName(), Code: failed.Code,
		Message: failed.Message, At: o.owner.Now(),
	})
	return failed
}

// withLine appends the last line of a command to an error message.
func withLine(message, line string) string {
	if line == "" {
		return message
	}
	return message + ": " + line
}

// maxFailuresKept is how many failed attempts a record keeps; older ones are dropped.
const maxFailuresKept = 10

// addFailedAttempt appends a failed attempt to the record, which keeps the last maxFailuresKept.
func addFailedAttempt(rec *statefs.Record, failed statefs.FailedAttempt) {
	failures := append(slices.Clone(rec.FailedAttempts), failed)
	rec.FailedAttempts = failures[max(len(failures)-maxFailuresKept, 0):]
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

// crashLine returns the log line of an operation that waits for a person because its work died too
// often.
func crashLine(rec *statefs.Record) string {
	_, why, _ := strings.Cut(rec.Reason, ": ")
	return fmt.Sprintf("  ERROR: %s; %s. Find out why, then 'jobdir retry %s', or 'jobdir cancel' it.",
		rec.Error.Message, why, rec.ID)
}

// goOn detaches an operation from its failed run and makes the transition for cause; the operation
// stays live. The record is durable before the marker is renamed and names the next state, so the
// result of the attempt is neither lost nor counted twice.
func (f *finisher) goOn(op *operation, cause statefs.Cause) error {
	op.copyProgress()
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
		now := f.owner.Now()
		op.rec.DueAt = &now // DueAt records that the run is over
	}
	op.unsaved = true
	return f.starts.finishRun(op)
}

// finishRun writes the record of an operation whose run is over, and removes the files of the run.
// Until that is done, op.finishedRun holds the run.
func (s *starts) finishRun(op *operation) error {
	if op.run != nil {
		op.run, op.endCause, op.finishedRun = nil, "", op.run
	}
	if err := s.persist(op); err != nil {
		return err
	}
	r := op.finishedRun
	op.finishedRun = nil
	s.closeLog(op)
	if op.state == statefs.Queued {
		s.reconcileQueue.enqueue(op.id())
	}
	return r.Forget()
}

// warnBackoff is the back-off for failures of class warn if the job configures no delay: such
// failures may repeat forever.
var warnBackoff = catalog.Retry{
	Initial: 5 * time.Second, Factor: catalog.DefaultRetryFactor,
	Cap: catalog.DefaultRetryCap, Jitter: catalog.DefaultRetryJitter,
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

// retryDelay returns the delay after failure n of a class.
func retryDelay(r *work.Run, failure error, class catalog.Class, n int) time.Duration {
	if asked := r.Outcome().RequestedDelay(failure); asked > 0 {
		return asked
	}
	retry := r.Def().Retry
	if class == catalog.ClassWarn && retry.Initial == 0 {
		retry = warnBackoff
	}
	return backoff(retry, n, rand.Float64())
}

// exceededLimit names the time limit of an operation that a retry after wait would exceed, "" for
// none. It uses the retention clock, which does not follow a forward jump of the clock at once,
// because the decision is final.
func (f *finisher) exceededLimit(op *operation, now time.Time, wait time.Duration) string {
	rec, def := op.rec, op.run.Def()
	if rec.RetryUntil == nil && def.Retry.For > 0 {
		until := now.Add(def.Retry.For - rec.ActiveTime(now))
		rec.RetryUntil = &until
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

// backoff returns the wait after failure n, counted from 1: min(cap, initial*factor^(n-1)),
// shortened by a random part of at most jitter of it. lot selects that part: 0 is the longest wait,
// and lot is below 1. It is a pure function; the caller stores the outcome, so that a restart does
// not draw again.
func backoff(r catalog.Retry, n int, lot float64) time.Duration {
	if r.Initial <= 0 {
		return 0
	}
	longest := float64(r.Cap)
	wait := float64(r.Initial) * math.Pow(r.Factor, float64(max(n, 1)-1))
	if !(wait < longest) { // also if it is infinite or NaN
		wait = longest
	}
	return time.Duration(wait * (1 - r.Jitter*lot))
}

// addDeath returns the deaths that count towards a crash limit, the new one last: those within the
// limit's period, at most limit.Burst of them. A death later than the new one was recorded before
// the clock was set back, and counts as of now. It is a pure function.
func addDeath(before []time.Time, at time.Time, limit catalog.CrashLimit) []time.Time {
	var deaths []time.Time
	for _, t := range before {
		if t.After(at) {
			t = at
		}
		if at.Sub(t) <= limit.Within {
			deaths = append(deaths, t)
		}
	}
	deaths = append(deaths, at)
	return slices.Clip(deaths[max(0, len(deaths)-limit.Burst):])
}

// crashLimitOf returns the crash limit of a job. Fields that the job does not set come from the
// configuration.
func (c *Config) crashLimitOf(def *catalog.Definition) catalog.CrashLimit {
	return def.CrashLimit.Or(c.CrashLimit)
}

// crashReason returns the reason for the record of an operation whose crash limit is used up.
func crashReason(limit catalog.CrashLimit) string { return "crash_limit: " + crashText(limit) }

func crashText(limit catalog.CrashLimit) string {
	return fmt.Sprintf("it died %d times within %s", limit.Burst, param.FormatDuration(limit.Within))
}

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
