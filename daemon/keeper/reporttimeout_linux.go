package keeper

import (
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

const (
	// shutdownReportTimeout is how long a keeper that is shutting down retries failing writes of
	// exit reports when it has nothing else left to do.
	shutdownReportTimeout = 10 * time.Second
	// orphanedReportTimeout is how long any other keeper retries them while no daemon is connected
	// and the storage fails in a way that does not repair itself, for example because its disk is
	// gone. On a full disk it retries without a limit.
	orphanedReportTimeout = 10 * time.Minute
)

// ErrReportsLost means that a keeper has stopped retrying to write how its last commands ended. The
// next daemon treats them as cut off.
var ErrReportsLost = errors.New("the exit reports of the last commands could not be written")

// reportRetry is the state of retrying: exit reports are all that is left to do, and they cannot be
// written.
type reportRetry struct {
	since time.Time
	err   error // the last error; guarded by the lock of the server
}

// noteFailure keeps the error of the last failed write of a report.
func (s *server) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportRetry.err = err
}

// abandonReports returns an error when it is time to give up reports that cannot be written: the
// keeper has to end, or no daemon is connected and the storage stays broken. From then on the
// keeper refuses connections.
func (s *server) abandonReports(unsaved bool, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !unsaved || s.running > 0 || len(s.clients) > 0 {
		s.reportRetry.since = time.Time{}
		return nil
	}
	if s.reportRetry.since.IsZero() {
		s.reportRetry.since = now
	}
	limit := s.orphanedReportTimeout
	if s.closing {
		limit = s.shutdownReportTimeout
	}
	tried := now.Sub(s.reportRetry.since)
	if tried < limit || !s.closing && files.DiskFull(s.reportRetry.err) {
		return nil
	}
	s.closing = true
	for key, h := range s.commands {
		if h.exit != nil {
			s.Logger.Error("exit report given up: the next daemon takes the command for cut off", "operation",
				key.Operation, "run", key.Run,
				"code", h.exit.Code, "signal", h.exit.Signal, "ended_at", h.exit.EndedAt)
		}
	}
	return fmt.Errorf("%w in %s: %w; bring the disk of %s back, and start the daemon again", ErrReportsLost,
		tried.Round(time.Second), s.reportRetry.err, s.named)
}
