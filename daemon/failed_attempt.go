package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
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

// addDeath sets the deaths of the outcome to those in before and, if the run died and counts, its
// own, and returns them.
func (a *attemptOutcome) addDeath(before []time.Time, at time.Time, limit catalog.CrashLimit) []time.Time {
	if isDeath(a.code) && a.class != catalog.ClassWarn && !a.uncounted {
		before = addDeath(before, at, limit)
	}
	a.deaths, a.burst = len(before), limit.Burst
	return before
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
func (d *Daemon) noteFailedAttempt(op *operation, err error, partial bool) (statefs.Cause,
	catalog.Class,
) {
	rec, r := op.rec, op.run
	uncounted := r.CutOffWhilePaused(rec.Error.Code) // classOf may change the code
	class := classOf(r, rec, err)
	limit, at := d.crashLimitOf(r.Def()), r.Outcome().EndedAt(new(time.Time), d.owner.Now())
	a := attemptOutcome{
		code: rec.Error.Code, class: class, restart: r.Def().Restart(), maxAttempts: r.Def().Retry.MaxAttempts,
		partial: partial, uncounted: uncounted,
	}
	if at.Sub(runStartedAt(rec)) > limit.Within {
		rec.Backoff = 0
	}
	rec.DiedAt = a.addDeath(rec.DiedAt, at, limit)
	if a.isAttempt() {
		rec.Attempts++
	} else if a.class == catalog.ClassWarn {
		rec.Warnings++
	}
	a.attempts = rec.Attempts
	cause := a.nextCause()
	var said string
	switch {
	case cause != statefs.CauseRescued:
	case !a.isAttempt() && a.class != catalog.ClassWarn:
		said = fmt.Sprintf("  Cut off: %s. It begins again.", rec.Error.Message)
	default:
		cause, said = d.nextAttempt(op, a, err)
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
		d.logLine(op, said)
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
func (d *Daemon) addLastLine(r *work.Run, rec *statefs.Record, failed, before *statefs.Fault,
	line string,
) *statefs.Fault {
	if unexplainedCodes[before.Code] && failed.Message == before.Message {
		failed = &statefs.Fault{Code: failed.Code, Message: withLine(failed.Message, line)}
	}
	addFailedAttempt(rec, statefs.FailedAttempt{
		Run: r.Number(), Step: r.StepName(), Code: failed.Code,
		Message: failed.Message, At: d.owner.Now(),
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
func (d *Daemon) continueAfterFailure(op *operation, cause statefs.Cause) error {
	op.copyProgress()
	if cause != statefs.CauseNeedsPerson && op.state == statefs.Paused {
		// The operation starts again once it is resumed and due.
		if cause == statefs.CauseRescued {
			op.rec.Rescues++
			now := d.owner.Now()
			op.rec.DueAt = &now // DueAt records that the run is over
		}
		op.unsaved = true
		return d.finishRun(op)
	}
	if err := d.transition(op, cause); err != nil {
		return err
	}
	return d.finishRun(op)
}

// finishRun writes the record of an operation whose run is over, and removes the files of the run.
// Until that is done, op.finishedRun holds the run.
func (d *Daemon) finishRun(op *operation) error {
	if op.run != nil {
		op.run, op.endCause, op.finishedRun = nil, "", op.run
	}
	d.repeatPause(op)
	if err := d.persist(op); err != nil {
		return err
	}
	r := op.finishedRun
	op.finishedRun = nil
	d.closeLog(op)
	if op.state == statefs.Queued {
		d.reconcileQueue.enqueue(op.id())
	}
	return r.Forget()
}
