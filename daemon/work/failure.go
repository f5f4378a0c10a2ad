package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs"
)

// Error is an error of the work with a code for programs.
type Error struct {
	Code string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// The causes with which work is ended early. A handler gets them from context.Cause.
var (
	// ErrCancelled means that the operation was cancelled.
	ErrCancelled = errors.New("the operation is cancelled")
	// ErrInterrupted means that the daemon stops; the operation continues when the daemon starts again.
	ErrInterrupted = errors.New("the daemon stops")
)

// end is why work is ended early: the transition that follows, and the word that a keeper keeps for the next daemon.
type end struct {
	cause statefs.Cause
	err   error
	word  string
}

var ends = []end{
	{statefs.CauseCancel, ErrCancelled, "cancelled"},
	{statefs.CauseMarkerMissing, ErrCancelled, "cancelled"},
	{statefs.CauseReject, ErrCancelled, "cancelled"},
	{statefs.CauseInterrupted, ErrInterrupted, "interrupted"},
}

// findEnd returns the first of ends that matches, the zero value if none does.
func findEnd(match func(end) bool) (found end) {
	if i := slices.IndexFunc(ends, match); i >= 0 {
		found = ends[i]
	}
	return found
}

// ErrorOf returns the error with which work is ended for a transition.
func ErrorOf(cause statefs.Cause) error {
	return findEnd(func(e end) bool { return e.cause == cause }).err
}

// CauseOf returns the cause of the transition for which work was ended with err, "" if err is another error.
func CauseOf(err error) statefs.Cause {
	return findEnd(func(e end) bool { return errors.Is(err, e.err) }).cause
}

// ErrDetached means that the daemon stops and leaves the commands to their keeper.
var ErrDetached = errors.New("the daemon stops and its commands continue")

// AttemptError is a handler's error that also determines what happens next. The job decides
// about the fields that are left empty.
type AttemptError struct {
	// Err is the reason why the work failed. It must not be nil.
	Err error
	// Code is the error code: small letters, digits and _. The default is handler_failed.
	Code string
	// Class decides what happens next: retry, no retry, leave it to a person, or retry without
	// counting the attempt. If it is "", the job decides.
	Class catalog.Class
	// RetryAfter is the delay before the next attempt, if there is one. If it is 0, the job
	// decides.
	RetryAfter time.Duration
}

// Error returns the text of Err.
func (f *AttemptError) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *AttemptError) Unwrap() error { return f.Err }

// RetryAfter wraps err as a failure that is worth a retry, after a wait of at least 1 ms.
func RetryAfter(err error, wait time.Duration) error {
	return &AttemptError{Err: err, Class: catalog.ClassRetryable, RetryAfter: max(wait, time.Millisecond)}
}

// NeedsPerson wraps err as a failure that only a person can fix: the operation becomes
// failed_manual.
func NeedsPerson(err error) error { return &AttemptError{Err: err, Class: catalog.ClassManual} }

// retryMember is the member of a command's result that requests the time of the next attempt.
const retryMember = "retry_after"

// maxRetryAfter is the longest delay that the work may request.
const maxRetryAfter = 365 * 24 * time.Hour

// parseRetryAfter parses the delay that a command requests: a number of seconds, a duration such as
// 90s, or a time such as 2025-11-26T13:07:00+01:00.
func parseRetryAfter(value json.RawMessage, now time.Time) (time.Duration, error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	var wait time.Duration
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds <= maxRetryAfter.Seconds() {
		wait = time.Duration(seconds * float64(time.Second))
	} else if d, ok := param.ParseDuration(text); ok {
		wait = d
	} else if param.TooLong(text) {
		wait = maxRetryAfter + 1
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		wait = at.Sub(now)
	} else {
		return 0, fmt.Errorf("%.40q is neither seconds nor a duration such as 90s nor a time such as %s", text,
			now.Format(time.RFC3339))
	}
	if wait > maxRetryAfter {
		return 0, fmt.Errorf("%.40q is more than a year away", text)
	}
	return max(wait, 1), nil
}

// CodeCutOff is the error code of work that was cut off because the daemon or the machine stopped.
const CodeCutOff = "cut_off"

// CutOff reports whether an error code means that the work died with its daemon, keeper or machine.
func CutOff(code string) bool { return code == "lost" || code == "keeper_died" || code == CodeCutOff }
