package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Submission is a submit with options. Job is required; options that are not set default to those of the job.
type Submission struct {
	// Job is the address: "group/name".
	Job string `json:"job"`
	// Params is encoded as a JSON object, whose values have the types that the job declares; nil means no parameters.
	Params any `json:"params,omitempty"`
	// Priority replaces the job's priority; higher ones start first.
	Priority *int `json:"priority,omitempty"`
	// Delay is the time before the operation may start, NotBefore the earliest start; only one of them may be set.
	Delay     time.Duration `json:"-"`
	NotBefore time.Time     `json:"not_before,omitzero"`
	// After are operations that must end first, and Require is the required result: statefs.RequireSuccess, the
	// default, or statefs.RequireEnd.
	After   []statefs.ID `json:"after,omitempty"`
	Require string       `json:"require,omitempty"`
	// Tags are added to the job's tags.
	Tags []string `json:"tags,omitempty"`
	// Key replaces the job's key; an empty one means none.
	Key *string `json:"key,omitempty"`
	// IdempotencyKey identifies the submit: a repetition of it returns the same operation.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// MarshalJSON implements json.Marshaler in the format of the API.
func (s Submission) MarshalJSON() ([]byte, error) {
	type plain Submission
	delay := ""
	if s.Delay > 0 {
		delay = fmt.Sprintf("%dms", max(s.Delay.Milliseconds(), 1))
	}
	return json.Marshal(struct {
		plain
		Delay string `json:"delay,omitempty"`
	}{plain(s), delay})
}

// Submitted is the result of a submit; package api has its members.
type Submitted = api.Submitted

// SubmitOne submits with options. When it returns, the operation is as durable as the storage promises. After an error
// other than *[Error] the operation may exist, unless [Unreachable] reports true; with an idempotency key the call can
// be repeated safely.
func (c *Client) SubmitOne(ctx context.Context, s Submission) (*Submitted, error) {
	out, err := c.submitJSON(ctx, "start "+s.Job, s)
	if err != nil {
		return nil, err
	}
	return &out[0], nil
}

// SubmitList submits up to 10,000 operations, all of them or none, and returns the results in the same order.
func (c *Client) SubmitList(ctx context.Context, list []Submission) ([]Submitted, error) {
	return c.submitJSON(ctx, "submit", list)
}

// SubmitJSON submits the JSON text of one submit or of a list, in the format of POST /api/v1/operations.
func (c *Client) SubmitJSON(ctx context.Context, data json.RawMessage) ([]Submitted, error) {
	return c.submitJSON(ctx, "submit", data)
}

func (c *conn) submitJSON(ctx context.Context, doing string, body any) ([]Submitted, error) {
	data, status, err := c.receive(ctx, http.MethodPost, "/api/v1/operations", nil, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var list api.SubmittedList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: the answer is not what a jobdir daemon sends: %w", doing, err)
	}
	out := list.Operations
	if out == nil { // the answer to a single submit
		out = []Submitted{{Code: status}}
		err = json.Unmarshal(data, &out[0])
	}
	for i := range out {
		if err != nil || out[i].ID.IsZero() {
			return nil, fmt.Errorf("%s: the answer holds no ID; is this a jobdir daemon?", doing)
		}
		out[i].Created = out[i].Code == http.StatusCreated
	}
	return out, nil
}
