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

// Answer is what the daemon says to a request.
type Answer struct {
	Success bool        `json:"success"`
	ID      statefs.ID  `json:"id"`
	Action  statefs.Ask `json:"action"`
	Message string      `json:"message"`
	// Step is the step that is meant, of an operation with steps.
	Step string `json:"step,omitempty"`
	// State and TookEffect are there after a wait, and when the request means nothing in the state that the daemon saw.
	State      statefs.State `json:"state,omitempty"`
	TookEffect *bool         `json:"took_effect,omitempty"`
	// Pending says that the wait is over and the request still stands.
	Pending bool `json:"pending,omitempty"`
	// Foreign says that another program keeps the operation: the request is written, and that program has to act on it. TookEffect is nil then,
	// unless its marker shows the effect.
	Foreign bool `json:"foreign,omitempty"`
}

// Request asks for something: pause, resume, cancel. It returns when the request is durable or, with a wait above zero,
// when it took effect or that time is over. The error is an *[Error] with status 404 when the operation is not live.
func (c *Client) Request(ctx context.Context, id statefs.ID, ask statefs.Ask, wait time.Duration) (*Answer, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	var answer Answer
	if err := c.call(ctx, http.MethodPost, operationPath(id, "/"+url.PathEscape(string(ask))), query, nil, &answer); err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	return &answer, nil
}

// Prioritize changes the place of a waiting operation in its lane: to a priority, higher ones first, or with nil before all others. It returns
// when the request is durable or, with a wait above zero, when it took effect or that time is over. The error is an *[Error] with status 404
// when the operation is not live.
func (c *Client) Prioritize(ctx context.Context, id statefs.ID, priority *int, wait time.Duration) (*Answer, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	if priority != nil {
		query.Set("priority", strconv.Itoa(*priority))
	}
	var answer Answer
	if err := c.call(ctx, http.MethodPost, operationPath(id, "/"+string(statefs.Prioritize)), query, nil, &answer); err != nil {
		return nil, fmt.Errorf("prioritize %s: %w", id, err)
	}
	return &answer, nil
}

// Holds reports whether the operation is as the request wanted it, be it by this request or because it was so already.
func (a *Answer) Holds() bool {
	switch a.Action {
	case statefs.Pause:
		return a.State == statefs.Paused
	case statefs.Resume:
		return a.State.Live() && a.State != statefs.Paused
	case statefs.Cancel:
		return a.State == statefs.Cancelled
	case statefs.Retry, statefs.Skip, statefs.Set, statefs.Approve, statefs.Reject, statefs.Prioritize:
	}
	return a.TookEffect != nil && *a.TookEffect
}
