package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jobdir/jobdir/statefs"
)

// WaitsForPerson reports whether the operation goes on only when somebody acts: on it, or on one that it comes after, which Waiting.NeedsPerson
// names then.
func (o *Operation) WaitsForPerson() bool {
	return o.State.NeedsPerson() || o.Waiting != nil && !o.Waiting.NeedsPerson.IsZero()
}

// NeedsPersonError says that an operation does not end before somebody acts, on it or on one that it comes after.
type NeedsPersonError struct {
	ID      statefs.ID
	State   statefs.State
	Message string // why, and the commands that help
}

func (e *NeedsPersonError) Error() string { return e.Message }

// restWait is how long one question is held by the daemon; then it is asked again.
const restWait = "5m"

// Rest waits until an operation has ended or waits for a person, and returns it as it is then. A daemon that goes away meanwhile is waited
// for, see [WithPatience]. Rest returns early with the cause of ctx, or with the error of the daemon.
func (c *Client) Rest(ctx context.Context, id statefs.ID) (*Operation, error) {
	return c.await(ctx, id, url.Values{"wait": {restWait}}, func(*Operation) bool { return false })
}

// Runs is Rest, but also returns as soon as the operation runs.
func (c *Client) Runs(ctx context.Context, id statefs.ID) (*Operation, error) {
	return c.await(ctx, id, url.Values{"wait": {restWait}, "for": {string(statefs.Running)}}, func(op *Operation) bool {
		return op.State == statefs.Running
	})
}

func (c *Client) await(ctx context.Context, id statefs.ID, query url.Values, enough func(*Operation) bool) (*Operation, error) {
	away := absence{client: c}
	for {
		var op Operation
		err := c.call(ctx, http.MethodGet, operationPath(id, ""), query, nil, &op)
		if err == nil {
			away.connected()
		}
		switch {
		case err == nil && (op.Ended() || op.WaitsForPerson() || enough(&op)):
			return &op, nil
		case err == nil:
			continue // it was held for as long as a daemon does
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case !isAway(err) || !away.again(ctx, err, false):
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
	}
}
