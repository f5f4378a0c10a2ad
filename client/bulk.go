package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Bulk is the result of an action on the operations that match a filter.
type Bulk struct {
	Action string `json:"action"`
	DryRun bool   `json:"dry_run"`
	// Total is how many match; a lower bound when TotalExact is false.
	Total      int  `json:"total"`
	TotalExact bool `json:"total_exact"`
	// At is the time of the query.
	At time.Time `json:"at"`
	// Operations is a sample of the matching operations, in a dry run.
	Operations []statefs.ID  `json:"operations,omitempty"`
	Done       int           `json:"done"`
	Failures   []BulkFailure `json:"failures"`
	// Next is passed to the next call to continue; "" when there are no more.
	Next string `json:"next"`
}

// BulkFailure is an unchanged operation, and why.
type BulkFailure = api.BulkFailure

// BulkDryRun returns how many operations match a filter and are in a state to which the action applies, and a sample of
// their IDs. Actions are pause, resume, cancel, retry and delete; the filter has parameters of GET /api/v1/operations.
func (c *Client) BulkDryRun(ctx context.Context, action string, filter url.Values) (*Bulk, error) {
	return c.bulkPage(ctx, action, filter, true, "")
}

// Bulk applies an action to all operations that match a filter. It calls the daemon once per thousand operations, and
// each, unless it is nil, with every answer. It returns the sum of the answers, also with an error.
func (c *Client) Bulk(ctx context.Context, action string, filter url.Values, each func(*Bulk)) (*Bulk, error) {
	all := &Bulk{Action: action, TotalExact: true, Failures: []BulkFailure{}}
	for {
		some, err := c.bulkPage(ctx, action, filter, false, all.Next)
		if err != nil {
			return all, err
		}
		if each != nil {
			each(some)
		}
		if all.Next == "" {
			all.Total, all.TotalExact, all.At = some.Total, some.TotalExact, some.At
		}
		all.Done += some.Done
		all.Failures = append(all.Failures, some.Failures...)
		if all.Next = some.Next; all.Next == "" {
			return all, nil
		}
	}
}

// BulkIDs applies an action to chosen operations, at most a thousand, in one call. Operations to which it does not
// apply are in Failures, with the reason.
func (c *Client) BulkIDs(ctx context.Context, action string, ids []statefs.ID) (*Bulk, error) {
	var answer Bulk
	if err := c.call(ctx, http.MethodPost, "/api/v1/bulk", nil, map[string]any{"action": action, "ids": ids},
		&answer); err != nil {
		return nil, fmt.Errorf("%s %d operations: %w", action, len(ids), err)
	}
	return &answer, nil
}

func (c *Client) bulkPage(ctx context.Context, action string, filter url.Values, dryRun bool,
	next string,
) (*Bulk, error) {
	body := map[string]any{"action": action, "filter": filter, "dry_run": dryRun, "next": next}
	var answer Bulk
	if err := c.call(ctx, http.MethodPost, "/api/v1/bulk", nil, body, &answer); err != nil {
		return nil, fmt.Errorf("%s what matches: %w", action, err)
	}
	return &answer, nil
}
