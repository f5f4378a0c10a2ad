package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/tally"
)

// Stats are counts and times of a daemon.
type Stats struct {
	tally.Stats
	// States counts by status, what has ended and is kept included while the daemon has its index.
	States map[statefs.State]int `json:"states"`
	// Outbox is what is to be delivered.
	Outbox statefs.OutboxStatus `json:"outbox"`
}

// Stats returns counts and times. It costs the daemon next to nothing.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	var s Stats
	if err := c.call(ctx, http.MethodGet, "/api/v1/stats", nil, nil, &s); err != nil {
		return nil, fmt.Errorf("ask for counts: %w", err)
	}
	return &s, nil
}
