package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
)

// Stats are counts and durations of a daemon.
type Stats struct {
	tally.Stats
	// States counts operations by status: live ones, and once the daemon has its index, also the ended ones it keeps.
	States map[statefs.State]int `json:"states"`
	// Outbox summarizes the pending deliveries.
	Outbox statefs.OutboxStatus `json:"outbox"`
}

// Stats returns counts and durations. It is cheap for the daemon.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	var s Stats
	if err := c.call(ctx, http.MethodGet, "/api/v1/stats", nil, nil, &s); err != nil {
		return nil, fmt.Errorf("get the counts: %w", err)
	}
	return &s, nil
}
