package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Bulk is what was done to operations that match a filter.
type Bulk struct {
	Action string `json:"action"`
	DryRun bool   `json:"dry_run"`
	// Total is how many match; a lower bound when TotalExact is false.
	Total      int  `json:"total"`
	TotalExact bool `json:"total_exact"`
	// At is when they were looked for.
	At time.Time `json:"at"`
	// Operations are some of those that match, of a dry run.
	Operations []statefs.ID  `json:"operations,omitempty"`
	Done       int           `json:"done"`
	Failures   []BulkFailure `json:"failures"`
	// Next is handed back to go on; "" when there are no more.
	Next string `json:"next"`
}

// BulkFailure is an operation that was left as it is, and why.
type BulkFailure struct {
	ID     statefs.ID `json:"id"`
	Status int        `json:"status"`
	Error  string     `json:"error"`
}

// BulkDryRun returns how many operations match a filter, of those for which an action means something, and the names of some. Actions are
// pause, resume, cancel, retry and delete; the filter has parameters of GET /api/v1/operations.
func (c *Client) BulkDryRun(ctx context.Context, action string, filter url.Values) (*Bulk, error) {
	return c.someBulk(ctx, action, filter, true, "")
}

// Bulk does something to all operations that match a filter. It calls the daemon once for each thousand, and each, when that is not nil, with
// every answer. What it returns is all of them together; after an error it says what was done before.
func (c *Client) Bulk(ctx context.Context, action string, filter url.Values, each func(*Bulk)) (*Bulk, error) {
	all := &Bulk{Action: action, TotalExact: true, Failures: []BulkFailure{}}
	for {
		some, err := c.someBulk(ctx, action, filter, false, all.Next)
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

func (c *Client) someBulk(ctx context.Context, action string, filter url.Values, dryRun bool, next string) (*Bulk, error) {
	body := map[string]any{"action": action, "filter": filter, "dry_run": dryRun, "next": next}
	var answer Bulk
	if err := c.call(ctx, http.MethodPost, "/api/v1/bulk", nil, body, &answer); err != nil {
		return nil, fmt.Errorf("%s what matches: %w", action, err)
	}
	return &answer, nil
}
