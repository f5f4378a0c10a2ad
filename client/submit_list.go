package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Submission is one submit with all that can be said about it. Job is needed, everything else may be left to the job.
type Submission struct {
	// Job is the address: "group/name".
	Job string `json:"job"`
	// Params is encoded as a JSON object, whose values have the types that the job declares; nil means no parameters.
	Params any `json:"params,omitempty"`
	// Priority replaces that of the job; higher ones start first.
	Priority *int `json:"priority,omitempty"`
	// Delay is how long it does not start, and NotBefore until when; only one of them may be set.
	Delay     time.Duration `json:"-"`
	NotBefore time.Time     `json:"not_before,omitzero"`
	// After are operations that it waits for, and Require is what their end must be: statefs.RequireSuccess, which is also meant by "", or
	// statefs.RequireEnd.
	After   []statefs.ID `json:"after,omitempty"`
	Require string       `json:"require,omitempty"`
	// Tags come to those of the job.
	Tags []string `json:"tags,omitempty"`
	// Key replaces that of the job; an empty one is none.
	Key *string `json:"key,omitempty"`
	// IdempotencyKey names the submit: a repetition of it gets the same operation.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// MarshalJSON writes the submission as the daemon reads it.
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

// Submitted is the operation that a submit came to.
type Submitted struct {
	ID    statefs.ID    `json:"id"`
	State statefs.State `json:"state"`
	// Created is false when the operation was there already: an equal one lives, or the idempotency key names it.
	Created bool `json:"-"`
	// Raw is the JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// SubmitOne submits with options. When it returns, the operation is as durable as the storage promises. An error other than *[Error] leaves open
// whether the operation was made, unless [Unreachable] reports true; with an idempotency key the same call may be made again.
func (c *Client) SubmitOne(ctx context.Context, s Submission) (*Submitted, error) {
	data, status, err := c.post(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Job, err)
	}
	out := Submitted{Created: status == http.StatusCreated, Raw: data}
	if err := json.Unmarshal(data, &out); err != nil || out.ID.IsZero() {
		return nil, fmt.Errorf("start %s: the answer holds no ID; is this a jobdir daemon?", s.Job)
	}
	return &out, nil
}

// SubmitList submits several, at most 10,000, all of them or none, and returns what each came to, in their order.
func (c *Client) SubmitList(ctx context.Context, list []Submission) ([]Submitted, error) {
	return c.submitJSON(ctx, list)
}

// SubmitJSON submits what a JSON text says, one submit or a list of them, as POST /api/v1/operations takes it.
func (c *Client) SubmitJSON(ctx context.Context, data json.RawMessage) ([]Submitted, error) {
	return c.submitJSON(ctx, data)
}

func (c *Client) submitJSON(ctx context.Context, body any) ([]Submitted, error) {
	data, status, err := c.post(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	var list struct {
		Operations []json.RawMessage `json:"operations"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("submit: the answer is not what a jobdir daemon sends: %w", err)
	}
	if list.Operations == nil { // of one
		list.Operations = []json.RawMessage{data}
	}
	out := make([]Submitted, len(list.Operations))
	for i, raw := range list.Operations {
		one := struct {
			*Submitted
			Code int `json:"code"`
		}{&out[i], status}
		if err := json.Unmarshal(raw, &one); err != nil || out[i].ID.IsZero() {
			return nil, errors.New("submit: the answer holds no ID; is this a jobdir daemon?")
		}
		out[i].Created, out[i].Raw = one.Code == http.StatusCreated, raw
	}
	return out, nil
}

// post sends a submit and returns the answer with its status.
func (c *Client) post(ctx context.Context, body any) (data []byte, status int, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/api/v1/operations", url.Values{}, body)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("read the answer: %w", err)
	}
	return data, resp.StatusCode, nil
}
