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
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// isDeath reports whether an error code is one of work that died without a verdict of its own or of
// the daemon.
func isDeath(code string) bool { return code == "signal" || work.CutOff(code) }

// finalCodes are the error codes that end an operation whatever its job configures.
var finalCodes = map[string]bool{"queue_timeout": true, "deadline_exceeded": true}

// attemptOutcome holds what nextCause needs to know about an operation whose run failed.
type attemptOutcome struct {
	code                  string
	class                 catalog.Class   // "" when neither the job nor the handler gives one
	restart               catalog.Restart // the job's rule for work that was cut off
	attempts, maxAttempts int
	partial               bool // only items failed, which does not make the operation failed
	uncounted             bool // it was cut off while it was paused: neither a death nor an attempt
	deaths, burst         int  // deaths counted for the crash limit, including this one, and the limit
}

// count adds a run of def that failed or was cut off to the counts of its operation or step, and completes the
// outcome with them.
func (a *attemptOutcome) count(def *catalog.Definition, limit catalog.CrashLimit, began, ended time.Time,
	attempts, backoff *int, diedAt *[]time.Time,
) {
	a.restart, a.maxAttempts = def.Restart(), def.Retry.MaxAttempts
	if ended.Sub(began) > limit.Within {
		*backoff = 0
	}
	if isDeath(a.code) && a.class != catalog.ClassWarn && !a.uncounted {
		*diedAt = addDeath(*diedAt, ended, limit)
	}
	a.deaths, a.burst = len(*diedAt), limit.Burst
	if a.isAttempt() {
		*attempts++
	}
	a.attempts = *attempts
}

// usesRestartRule reports whether the job's restart rule decides instead of its retry rule: the
// work was cut off, and its error code has no class.
func (a attemptOutcome) usesRestartRule() bool { return work.CutOff(a.code) && a.class == "" }

// isAttempt reports whether the run counts as an attempt.
func (a attemptOutcome) isAttempt() bool {
	return !a.uncounted && (a.class != catalog.ClassWarn || a.partial) &&
		(!a.usesRestartRule() || a.restart == catalog.RestartRetry)
}

// nextCause returns the cause of the operation's next transition after a failed run. CauseRescued
// means that it is tried again, at once or later. It is a pure function.
func (a attemptOutcome) nextCause() statefs.Cause {
	switch {
	case a.partial && (a.attempts >= a.maxAttempts || a.class != "" && a.class != catalog.ClassRetryable):
		return statefs.CauseDone
	case finalCodes[a.code]:
		return statefs.CauseExpired
	case a.class == catalog.ClassManual:
		return statefs.CauseNeedsPerson
	case a.class == catalog.ClassWarn:
		return statefs.CauseRescued
	case a.class == catalog.ClassFinal, a.usesRestartRule() && a.restart == catalog.RestartFail:
		return statefs.CauseFailed
	case a.isAttempt() && a.attempts >= a.maxAttempts:
		return statefs.CauseFailed
	case a.crashLimitReached():
		return statefs.CauseNeedsPerson
	}
	return statefs.CauseRescued
}

// crashLimitReached reports whether the work has died too often.
func (a attemptOutcome) crashLimitReached() bool {
	return isDeath(a.code) && !a.uncounted && a.deaths >= a.burst
}

// crashed reports whether a person must act because the crash limit is reached.
func (a attemptOutcome) crashed() bool {
	return a.nextCause() == statefs.CauseNeedsPerson && a.class != catalog.ClassManual
}

// noteFailedAttempt records in op.rec that a run failed with err, logs it, and returns the cause of
// the operation's next transition, and the class of the failure. A run is partial when only items
// failed, which does not make the operation failed.
func (f *finisher) noteFailedAttempt(op *operation, err error, partial bool) (statefs.Cause,
	catalog.Class,
) {
	rec, r := op.rec, op.run
	uncounted := r.CutOffWhilePaused(rec.Error.Code) // classOf may change the code
	class := classOf(r, rec, err)
	limit, at := f.crashLimitOf(r.Def()), r.Outcome().EndedAt(new(time.Time), f.owner.Now())
	a := attemptOutcome{code: rec.Error.Code, class: class, partial: partial, uncounted: uncounted}
	a.count(r.Def(), limit, runStartedAt(rec), at, &rec.Attempts, &rec.Backoff, &rec.DiedAt)
	if !a.isAttempt() && a.class == catalog.ClassWarn {
		rec.Warnings++
	}
	cause := a.nextCause()
	var said string
	switch {
	case cause != statefs.CauseRescued:
	case !a.isAttempt() && a.class != catalog.ClassWarn:
		said = fmt.Sprintf("  Cut off: %s. It begins again.", rec.Error.Message)
	default:
		cause, said = f.nextAttempt(op, a, err)
	}
	if r.Step() != nil && cause == statefs.CauseFailed {
		cause = statefs.CauseNeedsPerson // a person decides about a step that is not tried again
	}
	switch cause { //nolint:exhaustive // other causes end the operation
	case statefs.CauseDone:
		rec.Error = nil
	case statefs.CauseNeedsPerson:
		rec.Reason = "manual"
		if a.crashed() {
			rec.Reason = crashReason(limit)
		}
		rec.RedoFrom = r.Number() + 1
	case statefs.CauseRescued, statefs.CauseRetryLater:
		if a.isAttempt() || a.class == catalog.ClassWarn {
			rec.RedoFrom = r.Number() + 1
		}
	}
	if said == "" && cause != statefs.CauseDone {
		said = attemptLine(rec, cause, a)
	}
	if said != "" {
		f.logLine(op, said)
	}
	return cause, class
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
func attemptLine(rec *statefs.Record, cause statefs.Cause, a attemptOutcome) string {
	if cause != statefs.CauseNeedsPerson {
		return "  ERROR: " + rec.Error.Message
	}
	if a.crashed() {
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

// continueAfterFailure detaches an operation from its failed run and makes the transition for
// cause; the operation stays live. The record is durable before the marker is renamed and names the
// next state, so the result of the attempt is neither lost nor counted twice.
func (f *finisher) continueAfterFailure(op *operation, cause statefs.Cause) error {
	op.copyProgress()
	if cause != statefs.CauseNeedsPerson && op.state == statefs.Paused {
		// The operation starts again once it is resumed and due.
		if cause == statefs.CauseRescued {
			op.rec.Rescues++
			now := f.owner.Now()
			op.rec.DueAt = &now // DueAt records that the run is over
		}
		op.unsaved = true
		return f.starts.finishRun(op)
	}
	if err := f.transition(op, cause); err != nil {
		return err
	}
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

// nextAttempt decides when an operation is retried after a failed attempt. It returns the cause of
// the next transition and the log line: retry later, with the time in the record; retry at once; or
// no retry, because a time limit would be over by then.
func (f *finisher) nextAttempt(op *operation, a attemptOutcome, err error) (statefs.Cause, string) {
	rec, now := op.rec, f.owner.Now()
	what := fmt.Sprintf("Attempt %d of %d failed", rec.Attempts, a.maxAttempts)
	if a.maxAttempts == catalog.UnboundedAttempts {
		what = fmt.Sprintf("Attempt %d failed", rec.Attempts)
	}
	if a.class == catalog.ClassWarn {
		what = fmt.Sprintf("Run %d came to nothing, which counts as no attempt", rec.Run)
	}
	rec.Backoff++
	wait := retryDelay(op.run, err, a.class, rec.Backoff)
	if limit := f.exceededLimit(op, now, wait); limit != "" {
		if a.partial {
			return statefs.CauseDone, fmt.Sprintf("  %s. They are not done again: %s would be over by then.",
				rec.Error.Message, limit)
		}
		return statefs.CauseFailed, fmt.Sprintf("  ERROR: %s. It is not tried again: %s would be over by then.",
			rec.Error.Message, limit)
	}
	what = fmt.Sprintf("  %s: %s. It is tried again", what, rec.Error.Message)
	if wait <= 0 {
		return statefs.CauseRescued, what + "."
	}
	due := now.Add(wait)
	rec.DueAt = &due
	return statefs.CauseRetryLater, fmt.Sprintf("%s in %s, at %s.", what, formatWait(wait),
		due.Format("2006-01-02 15:04:05"))
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
func (c *core) crashLimitOf(def *catalog.Definition) catalog.CrashLimit {
	return def.CrashLimit.Or(c.config.CrashLimit)
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
