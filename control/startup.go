package control

import (
	"context"
	"net/http"

	"github.com/jobdir/jobdir/control/front"
)

// A starting daemon answers before it has loaded every live operation: reads, requests and the control of lanes do not
// wait for that. Counts are refused until then: they would be too low, and a producer would take the daemon for idle.

// startupRetryAfter is the Retry-After of a starting daemon, in seconds: a start loads thousands of operations per
// second.
const startupRetryAfter = "1"

// refuseAtStartup returns a refusal until the daemon has loaded every live operation, then nil.
func (s *liveTable) refuseAtStartup() error {
	if s.isStarting() {
		return front.Refuse(http.StatusServiceUnavailable,
			"The daemon is starting and has not listed the live operations yet: try again in a second").
			WithHeader("Retry-After", startupRetryAfter)
	}
	return nil
}

func (s *liveTable) isStarting() bool {
	select {
	case <-s.daemon.Ready():
		return false
	default:
		return true
	}
}

// awaitStartup returns when the daemon has loaded every live operation.
func (s *liveTable) awaitStartup(ctx context.Context) error {
	select {
	case <-s.daemon.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
