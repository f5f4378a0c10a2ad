package history

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotReady says that the index is being built or cannot be written, so that there is no answer which is certainly right.
var ErrNotReady = errors.New("the index of the history is being built: try again soon")

// NotReadyError is an ErrNotReady that says more.
type NotReadyError struct {
	// Records is how many records have been read, in all of Days days but those that are Left.
	Records, Days, Left int
	// Took is how long that took; 0 before it begins.
	Took time.Duration
	// Cause is why the index cannot be written, nil while it is being built.
	Cause error
}

func (e *NotReadyError) Error() string {
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("the index of the history cannot be written: %v; lists and the feed answer again when it can", e.Cause)
	case e.Took == 0:
		return ErrNotReady.Error()
	}
	return fmt.Sprintf("the index of the history is being built: %d records of %d of %d days read in %s; try again in %s",
		e.Records, e.Days-e.Left, e.Days, e.Took.Round(time.Second), e.After())
}

// Unwrap makes it an ErrNotReady, and what caused it.
func (e *NotReadyError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrNotReady}
	}
	return []error{ErrNotReady, e.Cause}
}

// The bounds of After.
const (
	soonest = time.Second
	unknown = 5 * time.Second // when nothing tells
	latest  = time.Minute
)

// After is when it makes sense to ask again, in whole seconds: as long as what is left takes when each day takes as long as the others did.
func (e *NotReadyError) After() time.Duration {
	done := e.Days - e.Left
	if e.Cause != nil || done <= 0 || e.Took <= 0 {
		return unknown
	}
	rest := time.Duration(float64(e.Took) / float64(done) * float64(e.Left))
	return min(max(rest.Round(time.Second), soonest), latest)
}

// reading is how far the index has been built.
type reading struct {
	began          time.Time
	records        int
	days, daysLeft int
}

// begin notes that building begins.
func (s *Store) beginReading(days int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = reading{began: time.Now(), days: days, daysLeft: days}
}

// haveRead notes that so many records, and perhaps the rest of a day, have been read.
func (s *Store) haveRead(records int, wholeDay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.records += records
	if wholeDay {
		s.reading.daysLeft--
	}
}

// Ready returns nil when questions can be answered, and a *NotReadyError otherwise.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &NotReadyError{Cause: s.failed}
	switch {
	case s.failed != nil:
	case s.building:
		if r := s.reading; !r.began.IsZero() {
			e.Records, e.Days, e.Left, e.Took = r.records, r.days, r.daysLeft, time.Since(r.began)
		}
	case !s.caughtUp, s.ended: // the start, or the end of the daemon
	default:
		return nil
	}
	return e
}
