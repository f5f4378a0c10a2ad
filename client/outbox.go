package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Outbox is a page of the deliveries that are not done, and a summary of all of them.
type Outbox struct {
	// Entries is the page, the oldest first; Total is how many match in all.
	Entries []statefs.OutboxItem `json:"entries"`
	Total   int                  `json:"total"`
	// Next is the cursor of the following page; nil on the last one.
	Next *string `json:"next"`
	statefs.OutboxStatus
	// OldestSeconds is the age of the oldest pending entry of all, 0 without entries.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// Outbox returns a page of the deliveries that are not done. filter has the parameters of GET /api/v1/outbox.
func (c *Client) Outbox(ctx context.Context, filter url.Values) (*Outbox, error) {
	var out Outbox
	if err := c.call(ctx, http.MethodGet, "/api/v1/outbox", filter, nil, &out); err != nil {
		return nil, fmt.Errorf("get the outbox: %w", err)
	}
	return &out, nil
}

// DeliveryAnswer is the answer to RetryDelivery and RequestDelivery.
type DeliveryAnswer struct {
	ID      statefs.ID `json:"id"`
	Message string     `json:"message"`
	// Entries are the affected entries with their current status.
	Entries []DeliveryAnswerEntry `json:"entries"`
	// Pending means that the request is not carried out yet or, after a wait, that an entry was not attempted.
	Pending bool `json:"pending"`
}

// DeliveryAnswerEntry is the status of an outbox entry after a request.
type DeliveryAnswerEntry struct {
	Entry  string                 `json:"entry"`
	Status statefs.DeliveryStatus `json:"status"`
	// Tried is set after a wait: whether the entry was attempted since the request. Error is why the attempt failed.
	Tried *bool  `json:"tried"`
	Error string `json:"error"`
}

// RetryDelivery requests a retry of a delivery, see RequestDelivery. With a wait above zero it returns when each entry
// was attempted or the wait is over. The longest wait is 10 minutes.
func (c *Client) RetryDelivery(ctx context.Context, entry string, args statefs.Args,
	wait time.Duration,
) (*DeliveryAnswer, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return c.requestDelivery(ctx, entry, statefs.RetryDelivery, args, query)
}

// RequestDelivery retries a delivery now, or drops it. entry is ID.N-KIND, or an ID for all unfinished deliveries of
// that operation. Of args it uses Reason and By. The error is an *[Error] with status 404 when there is no such
// delivery, and 409 when there is nothing to do.
func (c *Client) RequestDelivery(ctx context.Context, entry string, ask statefs.DeliveryAction,
	args statefs.Args,
) (*DeliveryAnswer, error) {
	return c.requestDelivery(ctx, entry, ask, args, nil)
}

// BulkDeliveries is the result of an action on the deliveries that match a filter.
type BulkDeliveries struct {
	// Total is how many matched at first, Done how many were retried or dropped.
	Total int `json:"total"`
	Done  int `json:"done"`
	// Entries is a sample of the matching entries, in a dry run.
	Entries []string `json:"entries,omitempty"`
	// Failures are the unchanged entries, and why.
	Failures []struct {
		Entry string `json:"entry"`
		Error string `json:"error"`
	} `json:"failures"`
	// Next is passed to the next call to continue; nil when there are no more.
	Next *string `json:"next"`
}

// BulkDeliveries retries or drops all deliveries that match a filter, with the parameters of GET /api/v1/outbox; a
// retry needs none. At each target one of them is attempted at once, and the others when that succeeds.
// BulkDeliveries calls the daemon once per thousand deliveries; with dryRun it only returns which match. After an
// error the result covers the calls before.
func (c *Client) BulkDeliveries(ctx context.Context, ask statefs.DeliveryAction, filter url.Values, args statefs.Args,
	dryRun bool,
) (*BulkDeliveries, error) {
	all := new(BulkDeliveries)
	body := map[string]any{"action": ask, "filter": filter, "dry_run": dryRun, "by": args.By, "reason": args.Reason}
	for first := true; ; first = false {
		var some BulkDeliveries
		if err := c.call(ctx, http.MethodPost, "/api/v1/outbox", nil, body, &some); err != nil {
			return all, fmt.Errorf("%s what matches: %w", ask, err)
		}
		if first {
			all.Total, all.Entries = some.Total, some.Entries
		}
		all.Done += some.Done
		all.Failures = append(all.Failures, some.Failures...)
		if some.Next == nil {
			return all, nil
		}
		body["next"] = *some.Next
	}
}

func (c *Client) requestDelivery(ctx context.Context, entry string, ask statefs.DeliveryAction, args statefs.Args,
	query url.Values,
) (*DeliveryAnswer, error) {
	var out DeliveryAnswer
	body := statefs.Args{By: args.By, Reason: args.Reason}
	if err := c.call(ctx, http.MethodPost, "/api/v1/outbox/"+url.PathEscape(entry)+"/"+url.PathEscape(string(ask)), query,
		body, &out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, entry, err)
	}
	return &out, nil
}
