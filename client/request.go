package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Answer is the daemon's answer to a request; package api has its members.
type Answer = api.Answer

// Arg is an argument of a request, such as the priority of a [statefs.Prioritize].
type Arg struct {
	Name  string
	Value int
}

// Request requests an action that concerns no step: it pauses, resumes or cancels an operation, or with
// [statefs.ForceCancel] cancels it without a grace period. It returns when the request is durable or, with a wait above
// zero, when it took effect or the wait is over. The error is an *[Error] with status 404 when the operation is not
// live.
func (c *Client) Request(ctx context.Context, id statefs.ID, ask statefs.Action, wait time.Duration,
	args ...Arg,
) (*Answer, error) {
	query := waitQuery(wait)
	for _, arg := range args {
		query.Set(arg.Name, strconv.Itoa(arg.Value))
	}
	return act(ctx, c.conn, id, ask, query, nil)
}

// act sends a request to the endpoint of an action. args are the arguments of a request about a step.
func act(ctx context.Context, c *conn, id statefs.ID, ask statefs.Action, query url.Values, args any) (*Answer, error) {
	endpoint := ask
	for _, spec := range statefs.ActionSpecs() {
		if spec.Force == ask {
			endpoint = spec.Action
			query.Set("force", "true")
		}
	}
	path := operationPath(id, "/"+url.PathEscape(string(endpoint)))
	return fetch[Answer](ctx, c, fmt.Sprintf("%s %s", ask, id), http.MethodPost, path, query, args)
}

// Prioritize changes the place of a waiting operation in its lane: to a priority, higher ones first, or with nil before
// all others. It is a [Client.Request] in all else.
func (c *Client) Prioritize(ctx context.Context, id statefs.ID, priority *int, wait time.Duration) (*Answer, error) {
	if priority == nil {
		return c.Request(ctx, id, statefs.Prioritize, wait)
	}
	return c.Request(ctx, id, statefs.Prioritize, wait, Arg{"priority", *priority})
}
