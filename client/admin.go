package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Sweep removes stray files from the storage and returns the findings; with dryRun it changes nothing.
func (c *Client) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	query := url.Values{"dry_run": {strconv.FormatBool(dryRun)}}
	answer, err := fetch[api.Swept](ctx, c.conn, "sweep", http.MethodPost, "/api/v1/sweep", query, nil)
	if err != nil {
		return nil, err
	}
	return answer.Findings, nil
}

// Health is the daemon's answer to /readyz; package api has its members.
type Health = api.Health

// Health returns whether the daemon is ready. An answer "not ready" is not an error.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	h := &Health{}
	err := c.call(ctx, http.MethodGet, "/readyz", nil, nil, &h.Raw)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusServiceUnavailable {
		return &Health{}, nil
	}
	if err == nil {
		err = json.Unmarshal(h.Raw, h)
	}
	if err != nil {
		return nil, fmt.Errorf("check that the daemon is ready: %w", err)
	}
	return h, nil
}
