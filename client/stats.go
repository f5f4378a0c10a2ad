package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/statefs/api"
)

// Stats are counts and durations of a daemon; package api has its members.
type Stats = api.Stats

// Stats returns counts and durations. It is cheap for the daemon.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	var s Stats
	if err := c.call(ctx, http.MethodGet, "/api/v1/stats", nil, nil, &s); err != nil {
		return nil, fmt.Errorf("get the counts: %w", err)
	}
	return &s, nil
}
