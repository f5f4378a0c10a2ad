package control

import (
	"context"
	"net/http"
)

// A daemon that starts answers before it knows all that lives: reading, requests and the control of lanes do not wait for that. A number of
// operations would be too small until then, and a producer that asks for it would take the daemon for idle.

// startingAgain is the Retry-After of a daemon that starts, in seconds: a start looks at thousands of operations in a second.
const startingAgain = "1"

// knowsAll returns the refusal of a daemon that does not know yet all that lives, nil when it does.
func (s *Server) knowsAll() error {
	if s.isStarting() {
		return refuse(http.StatusServiceUnavailable, "The daemon is starting and does not know yet all that lives, so nothing is counted: try again in a second").
			heads("Retry-After", startingAgain)
	}
	return nil
}

func (s *Server) isStarting() bool {
	select {
	case <-s.status.Ready():
		return false
	default:
		return true
	}
}

// awaitAll returns when the daemon knows all that lives.
func (s *Server) awaitAll(ctx context.Context) error {
	select {
	case <-s.status.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
