package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// The answers of the outbox; package api has their members.
type (
	// Outbox is a page of the deliveries that are not done, and a summary of all of them.
	Outbox = api.Outbox
	// DeliveryAnswer is the answer to a retry or drop of deliveries.
	DeliveryAnswer = api.DeliveryAnswer
	// DeliveryAnswerEntry is the status of an outbox entry after a request.
	DeliveryAnswerEntry = api.DeliveryAnswerEntry
	// BulkDeliveries is the result of an action on the deliveries that match a filter.
	BulkDeliveries = api.BulkDeliveries
)

// OutboxService reads and changes the outbox; see [Client.Deliveries].
type OutboxService struct{ *conn }

// Deliveries returns the deliveries in the outbox of the daemon. It sends nothing.
func (c *Client) Deliveries() OutboxService { return OutboxService{c.conn} }

// List returns a page of the deliveries that are not done. filter has the parameters of GET /api/v1/outbox.
func (d OutboxService) List(ctx context.Context, filter url.Values) (*Outbox, error) {
	return fetch[Outbox](ctx, d.conn, "get the outbox", http.MethodGet, "/api/v1/outbox", filter, nil)
}

// Request retries a delivery now, or drops it. entry is ID.N-KIND, or an ID for all unfinished deliveries of that
// operation. Of args it uses Reason and By. A retry with a wait above zero, 10 minutes at most, returns when each entry
// was attempted or the wait is over. The error is an *[Error] with status 404 when there is no such delivery, and 409
// when there is nothing to do.
func (d OutboxService) Request(ctx context.Context, entry string, ask statefs.DeliveryAction, args statefs.Args,
	wait time.Duration,
) (*DeliveryAnswer, error) {
	path := "/api/v1/outbox/" + url.PathEscape(entry) + "/" + url.PathEscape(string(ask))
	return fetch[DeliveryAnswer](ctx, d.conn, string(ask)+" "+entry, http.MethodPost, path, waitQuery(wait),
		statefs.Args{By: args.By, Reason: args.Reason})
}

// Bulk retries or drops all deliveries that match a filter, with the parameters of GET /api/v1/outbox; a
// retry needs none. At each target one of them is attempted at once, and the others when that succeeds.
// Bulk calls the daemon once per thousand deliveries; with dryRun it only returns which match. After an
// error the result covers the calls before.
func (d OutboxService) Bulk(ctx context.Context, ask statefs.DeliveryAction, filter url.Values, args statefs.Args,
	dryRun bool,
) (*BulkDeliveries, error) {
	all := new(BulkDeliveries)
	body := api.BulkDeliveriesRequest[url.Values]{
		Action: ask, By: args.By, DryRun: dryRun, Filter: filter, Reason: args.Reason,
	}
	for first := true; ; first = false {
		some, err := fetch[BulkDeliveries](ctx, d.conn, string(ask)+" what matches", http.MethodPost, "/api/v1/outbox", nil, body)
		if err != nil {
			return all, err
		}
		if first {
			all.Total, all.Entries = some.Total, some.Entries
		}
		all.Done += some.Done
		all.Failures = append(all.Failures, some.Failures...)
		if some.Next == nil {
			return all, nil
		}
		body.Next = *some.Next
	}
}
