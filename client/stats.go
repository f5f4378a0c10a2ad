package client

import (
	"context"
	"net/http"

	"github.com/jobdir/jobdir/statefs/api"
)

// Stats are counts and durations of a daemon; package api has its members.
type Stats = api.Stats

// Stats returns counts and durations. It is cheap for the daemon.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	return fetch[Stats](ctx, c.conn, "get the counts", http.MethodGet, "/api/v1/stats", nil, nil)
}
