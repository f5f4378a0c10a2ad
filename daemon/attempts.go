package daemon

import (
	"cmp"
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
	"github.com/jobdir/jobdir/stream"
)

// finalCodes are the error codes that end an operation whatever its job configures.
var finalCodes = map[string]bool{"queue_timeout": true, "deadline_exceeded": true}

// unexplainedCodes are the error codes that describe how a command ended but not why.
var unexplainedCodes = map[string]bool{
	"exit_code": true, "signal": true, "lost": true, "keeper_died": true, "timeout": true, "stalled": true,
	"deadline_exceeded": true,
}

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

func fault(err error) *statefs.Fault {
	if w, ok := errors.AsType[*work.Error](err); ok {
		return &statefs.Fault{Code: w.Code, Message: w.Error()}
	}
	return &statefs.Fault{Code: "failed", Message: err.Error()}
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

// classOf returns the class of a failure. A matching error pattern of the job decides first, then
// the class that a handler gives, then the job's exit_codes.
func classOf(r *work.Run, rec *statefs.Record, err error) catalog.Class {
	code := rec.Error.Code
	if class := matchErrorPattern(r, rec); class != "" {
		return class
	}
	if f, ok := errors.AsType[*work.AttemptError](err); ok && f.Class != "" {
		return f.Class
	}
	if class := r.Def().ExitCodes.Class(code, rec.ExitCode); class != "" {
		return class
	}
	return r.Def().ExitCodes.Class(rec.Error.Code, rec.ExitCode)
}

// addLastLine records a failed attempt, and appends the command's last line to its error unless an
// error pattern of the job has already chosen a line. before is the error before the patterns were
// applied.
func addLastLine(r *work.Run, rec *statefs.Record, failed, before *statefs.Fault,
	line string, now time.Time,
) *statefs.Fault {
	if unexplainedCodes[before.Code] && failed.Message == before.Message {
		failed = &statefs.Fault{Code: failed.Code, Message: withLine(failed.Message, line)}
	}
	addFailedAttempt(rec, statefs.FailedAttempt{
		Run: r.Number(), Step: r.StepName(), Code: failed.Code,
		Message: failed.Message, At: now,
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

// crashLine returns the log line of an operation that waits for a person because its work died too
// often.
func crashLine(rec *statefs.Record) string {
	_, why, _ := strings.Cut(rec.Reason, ": ")
	return fmt.Sprintf("  ERROR: %s; %s. Find out why, then 'jobdir retry %s', or 'jobdir cancel' it.",
		rec.Error.Message, why, rec.ID)
}

// warnBackoff is the back-off for failures of class warn if the job configures no delay: such
// failures may repeat forever.
var warnBackoff = catalog.Retry{
	Initial: 5 * time.Second, Factor: catalog.DefaultRetryFactor,
	Cap: catalog.DefaultRetryCap, Jitter: catalog.DefaultRetryJitter,
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

func crashText(limit catalog.CrashLimit) string {
	return fmt.Sprintf("it died %d times within %s", limit.Burst, param.FormatDuration(limit.Within))
}

// matchErrorPattern finds the first error pattern of the job that matches the output of the work,
// changes the error accordingly, and returns its class.
func matchErrorPattern(r *work.Run, rec *statefs.Record) catalog.Class {
	if r.Step() == nil {
		return ""
	}
	if rec.Error.Code == work.OutputMissing || rec.Error.Code == work.OutputTooLarge {
		return catalog.ClassManual
	}
	if len(r.Step().Errors) == 0 || finalCodes[rec.Error.Code] {
		return ""
	}
	pattern, line := r.Step().ErrorIn(append(r.LastLines(), rec.Error.Message))
	if pattern == nil {
		return ""
	}
	rec.Error = &statefs.Fault{Code: cmp.Or(pattern.Code, rec.Error.Code), Message: stream.Printable(strings.TrimSpace(line))}
	return pattern.Class
}
