package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// The results of actions on many operations; package api has their members.
type (
	// Bulk is the result of an action on the operations that match a filter. Next is "" when there are no more.
	Bulk = api.Bulk[string]
	// BulkFailure is an unchanged operation, and why.
	BulkFailure = api.BulkFailure
)

// bulkRequest is the body of POST /api/v1/bulk.
type bulkRequest = api.BulkRequest[url.Values, statefs.ID]

// BulkDryRun returns how many operations match a filter and are in a state to which the action applies, and a sample of
// their IDs. Actions are pause, resume, cancel, retry and delete; the filter has parameters of GET /api/v1/operations.
func (c *Client) BulkDryRun(ctx context.Context, action string, filter url.Values) (*Bulk, error) {
	return c.bulk(ctx, "what matches", &bulkRequest{Action: action, Filter: filter, DryRun: true})
}

// Bulk applies an action to all operations that match a filter. It calls the daemon once per thousand operations, and
// each, unless it is nil, with every answer. It returns the sum of the answers, also with an error.
func (c *Client) Bulk(ctx context.Context, action string, filter url.Values, each func(*Bulk)) (*Bulk, error) {
	all := &Bulk{Action: action, TotalExact: true, Failures: []BulkFailure{}}
	for {
		some, err := c.bulk(ctx, "what matches", &bulkRequest{Action: action, Filter: filter, Next: all.Next})
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
	return c.bulk(ctx, fmt.Sprintf("%d operations", len(ids)), &bulkRequest{Action: action, IDs: ids})
}

// bulk sends a request; what names the operations in errors.
func (c *conn) bulk(ctx context.Context, what string, request *bulkRequest) (*Bulk, error) {
	return fetch[Bulk](ctx, c, request.Action+" "+what, http.MethodPost, "/api/v1/bulk", nil, request)
}
