package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Outbox is what is to be delivered and is not yet: a page of entries, and how the outbox is as a whole.
type Outbox struct {
	// Entries are those of the page, the oldest first; Total is how many match in all.
	Entries []statefs.OutboxItem `json:"entries"`
	Total   int                  `json:"total"`
	// Next continues behind this page; nil when it is the last.
	Next *string `json:"next"`
	statefs.OutboxStatus
	// OldestSeconds is the age of the oldest pending entry of all, 0 when there is none.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// Outbox returns a page of what is to be delivered. filter has the parameters of GET /api/v1/outbox.
func (c *Client) Outbox(ctx context.Context, filter url.Values) (*Outbox, error) {
	var out Outbox
	if err := c.call(ctx, http.MethodGet, "/api/v1/outbox", filter, nil, &out); err != nil {
		return nil, fmt.Errorf("ask for the outbox: %w", err)
	}
	return &out, nil
}

// AskedDelivery is the answer to AskDelivery.
type AskedDelivery struct {
	ID      statefs.ID `json:"id"`
	Message string     `json:"message"`
	// Entries are what was asked for, and how each stands now.
	Entries []AskedEntry `json:"entries"`
	// Pending says that the request stands and was not carried out yet or, after a wait, that something was not tried.
	Pending bool `json:"pending"`
}

// AskedEntry is how an entry of the outbox stands after somebody asked for something.
type AskedEntry struct {
	Entry  string                 `json:"entry"`
	Status statefs.DeliveryStatus `json:"status"`
	// Tried says after a wait whether it was tried since it was asked for, and Error why that failed, "" when it did not.
	Tried *bool  `json:"tried"`
	Error string `json:"error"`
}

// RetryDelivery is AskDelivery of a retry that, with a wait above zero, returns when each entry was tried or that time is over. The longest wait is 10 minutes.
func (c *Client) RetryDelivery(ctx context.Context, entry string, args statefs.Args, wait time.Duration) (*AskedDelivery, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return c.askDelivery(ctx, entry, statefs.RetryDelivery, args, query)
}

// AskDelivery has a delivery tried now, or gives it up: entry is ID.N-KIND, or an ID for all that operation has to deliver. Of args Reason and By count. The
// error is an *[Error] with status 404 when there is no such delivery, and 409 when there is nothing to do.
func (c *Client) AskDelivery(ctx context.Context, entry string, ask statefs.DeliveryAsk, args statefs.Args) (*AskedDelivery, error) {
	return c.askDelivery(ctx, entry, ask, args, nil)
}

// BulkDeliveries is what was done to deliveries that match a filter.
type BulkDeliveries struct {
	// Total is how many matched at first, Done how many were retried or given up.
	Total int `json:"total"`
	Done  int `json:"done"`
	// Entries are some of those that match, of a dry run.
	Entries []string `json:"entries,omitempty"`
	// Failures are those that were left as they are, and why.
	Failures []struct {
		Entry string `json:"entry"`
		Error string `json:"error"`
	} `json:"failures"`
	// Next is handed back to go on; nil when there are no more.
	Next *string `json:"next"`
}

// BulkDeliveries has all deliveries tried again, or given up, that match a filter, of the parameters of GET /api/v1/outbox; a retry needs none. Each target is
// tried with one of them at once, and with the others when that goes through. It calls the daemon once for each thousand; with dryRun it is only said which
// match. After an error what it returns says what was done before.
func (c *Client) BulkDeliveries(ctx context.Context, ask statefs.DeliveryAsk, filter url.Values, args statefs.Args, dryRun bool) (*BulkDeliveries, error) {
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

func (c *Client) askDelivery(ctx context.Context, entry string, ask statefs.DeliveryAsk, args statefs.Args, query url.Values) (*AskedDelivery, error) {
	var out AskedDelivery
	body := statefs.Args{By: args.By, Reason: args.Reason}
	if err := c.call(ctx, http.MethodPost, "/api/v1/outbox/"+url.PathEscape(entry)+"/"+url.PathEscape(string(ask)), query, body, &out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, entry, err)
	}
	return &out, nil
}
