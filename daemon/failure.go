package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// AttemptError is an error with which a handler says what is to be done about it. The exit_codes of the job count for what it leaves open.
type AttemptError struct {
	// Err is why the work failed. It must not be nil.
	Err error
	// Code is the error code, small letters, digits and _; default handler_failed.
	Code string
	// Class is what is done: tried again, left to a person, or tried again without counting; "" leaves it to the job.
	Class catalog.Class
	// RetryAfter is how long to wait before the next attempt, which makes the failure retryable when it has no class; 0 leaves it to the job.
	RetryAfter time.Duration
}

// Error returns the text of Err.
func (f *AttemptError) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *AttemptError) Unwrap() error { return f.Err }

// RetryAfter returns err as a failure that may go well another time, after a wait of at least 1 ms.
func RetryAfter(err error, wait time.Duration) error {
	return &AttemptError{Err: err, Class: catalog.ClassRetryable, RetryAfter: max(wait, time.Millisecond)}
}

// NeedsPerson returns err as a failure that only a person can mend: the operation becomes failed_manual.
func NeedsPerson(err error) error { return &AttemptError{Err: err, Class: catalog.ClassManual} }

// retryMember is the member of a command's result by which it asks for the time of the next attempt.
const retryMember = "retry_after"

// longestAsk is the longest wait that work may ask for.
const longestAsk = 365 * 24 * time.Hour

// handlerError is the error of a handler as the error of its work.
func handlerError(err error) error {
	code := "handler_failed"
	if f, ok := errors.AsType[*AttemptError](err); ok {
		code = cmp.Or(f.Code, code)
	}
	return &workError{code: code, err: err}
}

// askedWait is how long the work wants to wait before it is tried again, 0 when it does not say.
func (r *run) askedWait(err error) time.Duration {
	if f, ok := errors.AsType[*AttemptError](err); ok && f.RetryAfter > 0 {
		return min(f.RetryAfter, longestAsk)
	}
	return r.asked
}

// takeAsk takes the wait that a command asks for out of its result. One that cannot be understood is reported in the log, and the wait of
// the job counts.
func (r *run) takeAsk(fields []field) []field {
	rest := fields[:0]
	for _, f := range fields {
		if f.name != retryMember {
			rest = append(rest, f)
			continue
		}
		if string(f.value) == "null" {
			continue // it asks for none
		}
		wait, err := parseAsk(f.value, r.owner.Now())
		if err != nil {
			r.line(fmt.Sprintf("  %s in the result is passed over: %v.", retryMember, err))
			continue
		}
		r.asked = wait
	}
	return rest
}

// parseAsk reads the wait that a command asks for: a number of seconds, a duration such as 90s, or a time as in 2025-11-26T13:07:00+01:00.
func parseAsk(value json.RawMessage, now time.Time) (time.Duration, error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	var wait time.Duration
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds <= longestAsk.Seconds() {
		wait = time.Duration(seconds * float64(time.Second))
	} else if d, ok := catalog.ParseDuration(text); ok {
		wait = d
	} else if catalog.TooLong(text) {
		wait = longestAsk + 1
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		wait = at.Sub(now)
	} else {
		return 0, fmt.Errorf("%.40q is neither seconds nor a duration such as 90s nor a time such as %s", text, now.Format(time.RFC3339))
	}
	if wait > longestAsk {
		return 0, fmt.Errorf("%.40q is more than a year away", text)
	}
	return max(wait, 1), nil
}
