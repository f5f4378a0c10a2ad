package keeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

const (
	// farewell is how long a keeper that was told to end goes on trying to write exit reports when nothing else is left to do.
	farewell = 10 * time.Second
	// forlorn is how long one does that nobody told, while no daemon is there and the storage fails in a way that does not mend itself,
	// such as one whose disk is gone. One that is only full is waited for.
	forlorn = 10 * time.Minute
)

// ErrReportsLost says that a keeper has given up writing how its last commands ended. The next daemon takes them for cut off.
var ErrReportsLost = errors.New("the exit reports of the last commands could not be written")

// trying is since when exit reports are all that is left to do and cannot be written.
type trying struct {
	since time.Time
	err   error // the last one; guarded by the lock of the server
}

// noteFailure keeps why a report could not be written.
func (s *server) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trying.err = err
}

// givesUp returns an error when it is time to leave the reports that cannot be written: the keeper has to end, or there is nobody who
// would come for them and no storage to write them to. From then on it refuses whoever comes.
func (s *server) givesUp(unsaved bool, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unsaved || s.running > 0 || len(s.clients) > 0 {
		s.trying.since = time.Time{}
		return nil
	}
	if s.trying.since.IsZero() {
		s.trying.since = now
	}
	limit := s.forlorn
	if s.closing {
		limit = s.farewell
	}
	tried := now.Sub(s.trying.since)
	if tried < limit || !s.closing && statefs.Scarce(s.trying.err) {
		return nil
	}
	s.closing = true
	for key, h := range s.held {
		if h.exit != nil {
			s.Logger.Error("exit report given up: the next daemon takes the command for cut off", "operation", key.Operation, "run", key.Run,
				"code", h.exit.Code, "signal", h.exit.Signal, "ended_at", h.exit.EndedAt)
		}
	}
	return fmt.Errorf("%w in %s: %w; bring the disk of %s back, and start the daemon again", ErrReportsLost, tried.Round(time.Second), s.trying.err, s.named)
}
