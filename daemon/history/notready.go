package history

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotReady means that the index is being built or cannot be written, so that no answer is
// certainly right.
var ErrNotReady = errors.New("the history index is being built: try again soon")

// NotReadyError is an ErrNotReady with details.
type NotReadyError struct {
	// Records is how many records have been read. Left of the Days days are still to be read.
	Records, Days, Left int
	// Took is how long the build has taken so far; 0 before it begins.
	Took time.Duration
	// Cause is why the index cannot be written, nil while it is being built.
	Cause error
}

func (e *NotReadyError) Error() string {
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("the index of the history cannot be written: %v; lists and the feed answer again when it can",
			e.Cause)
	case e.Took == 0:
		return ErrNotReady.Error()
	}
	return fmt.Sprintf("the index of the history is being built: %d records of %d of %d days read in %s; try again in %s",
		e.Records, e.Days-e.Left, e.Days, e.Took.Round(time.Second), e.After())
}

// Unwrap returns ErrNotReady and the cause, if any.
func (e *NotReadyError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrNotReady}
	}
	return []error{ErrNotReady, e.Cause}
}

// The bounds of After.
const (
	minRetryAfter     = time.Second
	unknownRetryAfter = 5 * time.Second // when there is no estimate
	maxRetryAfter     = time.Minute
)

// After returns when to ask again, in whole seconds. It assumes that each remaining day takes as
// long as the days read so far.
func (e *NotReadyError) After() time.Duration {
	done := e.Days - e.Left
	if e.Cause != nil || done <= 0 || e.Took <= 0 {
		return unknownRetryAfter
	}
	rest := time.Duration(float64(e.Took) / float64(done) * float64(e.Left))
	return min(max(rest.Round(time.Second), minRetryAfter), maxRetryAfter)
}

// buildProgress is how far the index has been built.
type buildProgress struct {
	began          time.Time
	records        int
	days, daysLeft int
}

// progress changes how far the index has been built.
func (w *writer) progress(change func(*buildProgress)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.reading)
}

// Ready returns nil when queries can be answered, and a *NotReadyError otherwise.
func (w *writer) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.readyLocked()
}

func (w *writer) readyLocked() error {
	e := &NotReadyError{Cause: w.failed}
	switch {
	case w.failed != nil:
	case w.building:
		if r := w.reading; !r.began.IsZero() {
			e.Records, e.Days, e.Left, e.Took = r.records, r.days, r.daysLeft, time.Since(r.began)
		}
	case !w.caughtUp, w.ended: // during start and shutdown
	default:
		return nil
	}
	return e
}
