package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Answer is the daemon's answer to a request.
type Answer struct {
	Success bool           `json:"success"`
	ID      statefs.ID     `json:"id"`
	Action  statefs.Action `json:"action"`
	Message string         `json:"message"`
	// Step is the affected step of an operation with steps.
	Step string `json:"step,omitempty"`
	// State and TookEffect are set after a wait, and when the request does not apply in the observed state.
	State      statefs.State `json:"state,omitempty"`
	TookEffect *bool         `json:"took_effect,omitempty"`
	// Changed points to false when the request would change nothing, because it does not apply in the state of the
	// operation. Then no request was written.
	Changed *bool `json:"changed,omitempty"`
	// Durable points to false when a pause, resume or cancel took effect within the wait, but the daemon could not make
	// it durable, as on a full disk: the work is stopped, goes on or has ended, and the daemon records that as soon as
	// it can.
	Durable *bool `json:"durable,omitempty"`
	// Pending means that the wait ended before the request was carried out.
	Pending bool `json:"pending,omitempty"`
	// Foreign means that another program owns the operation: the request is written, and that program has to act on it.
	// TookEffect is nil then, unless its marker shows the effect.
	Foreign bool `json:"foreign,omitempty"`
}

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
	query := url.Values{}
	for _, arg := range args {
		query.Set(arg.Name, strconv.Itoa(arg.Value))
	}
	return act(ctx, c, id, ask, query, nil, wait)
}

// act sends a request to the endpoint of an action. args are the arguments of a request about a step.
func act(ctx context.Context, c *Client, id statefs.ID, ask statefs.Action, query url.Values, args any,
	wait time.Duration,
) (*Answer, error) {
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	endpoint := ask
	for _, spec := range statefs.ActionSpecs() {
		if spec.Force == ask {
			endpoint = spec.Action
			query.Set("force", "true")
		}
	}
	var answer Answer
	if err := c.call(ctx, http.MethodPost, operationPath(id, "/"+url.PathEscape(string(endpoint))), query, args,
		&answer); err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	return &answer, nil
}

// Prioritize changes the place of a waiting operation in its lane: to a priority, higher ones first, or with nil before
// all others. It is a [Client.Request] in all else.
func (c *Client) Prioritize(ctx context.Context, id statefs.ID, priority *int, wait time.Duration) (*Answer, error) {
	if priority == nil {
		return c.Request(ctx, id, statefs.Prioritize, wait)
	}
	return c.Request(ctx, id, statefs.Prioritize, wait, Arg{"priority", *priority})
}

// InEffect reports whether the request took effect, or was a pause or cancel of an operation that was paused or
// cancelled already.
func (a *Answer) InEffect() bool {
	if a.TookEffect != nil && *a.TookEffect {
		return true
	}
	return a.Action == statefs.Pause && a.State == statefs.Paused || a.Action.Cancels() && a.State == statefs.Cancelled
}
