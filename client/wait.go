package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jobdir/jobdir/statefs"
)

// WaitsForPerson reports whether the operation goes on only when a person acts: on it, or on a dependency, which
// Waiting.NeedsPerson then names.
func (o *Operation) WaitsForPerson() bool {
	return o.State.NeedsPerson() || o.Waiting != nil && !o.Waiting.NeedsPerson.IsZero()
}

// NeedsPersonError means that an operation cannot end until a person acts, on it or on a dependency.
type NeedsPersonError struct {
	ID      statefs.ID
	State   statefs.State
	Message string // why, and the commands that help
}

func (e *NeedsPersonError) Error() string { return e.Message }

// longPollWait is how long the daemon may hold one request; then the client sends the next.
const longPollWait = "5m"

// WaitSettled waits until an operation has ended or waits for a person, and returns it as it is then. After a
// restart of the daemon it waits on, see [WithReconnectTimeout]. WaitSettled returns early with the cause of ctx, or
// with the error of the daemon.
func (c *Client) WaitSettled(ctx context.Context, id statefs.ID) (*Operation, error) {
	return c.await(ctx, id, url.Values{"wait": {longPollWait}})
}

// WaitRunning is WaitSettled, but also returns as soon as the operation runs.
func (c *Client) WaitRunning(ctx context.Context, id statefs.ID) (*Operation, error) {
	return c.await(ctx, id, url.Values{"wait": {longPollWait}, "for": {string(statefs.Running)}})
}

func (c *conn) await(ctx context.Context, id statefs.ID, query url.Values) (*Operation, error) {
	away := outage{conn: c}
	for {
		var op Operation
		err := c.call(ctx, http.MethodGet, operationPath(id, ""), query, nil, &op)
		if err == nil {
			away.connected()
		}
		switch {
		case err == nil && (op.Ended() || op.WaitsForPerson() || string(op.State) == query.Get("for")):
			return &op, nil
		case err == nil:
			continue // the long poll expired
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case !isUnavailable(err) || !away.retry(ctx, err, false):
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
	}
}
