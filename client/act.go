package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Act asks for something about a step of an operation: skip, set, approve, reject, or the retry of a live one. What args leave out is the step
// at which the operation stands. It returns when the request is durable or, with a wait above zero, when it was carried out or that time is
// over. The error is an *[Error]: 400 when args are wrong, 404 or 410 when there is no such operation, 409 when its state has no use for the
// request.
func (c *Client) Act(ctx context.Context, id statefs.ID, ask statefs.Ask, args statefs.Args, wait time.Duration) (*Answer, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	var answer Answer
	if err := c.call(ctx, http.MethodPost, operationPath(id, "/"+url.PathEscape(string(ask))), query, args, &answer); err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	return &answer, nil
}

// Skip lets an operation go on without a step that has failed, or waits for an approval.
func (c *Client) Skip(ctx context.Context, id statefs.ID, args statefs.Args) (*Answer, error) {
	return c.Act(ctx, id, statefs.Skip, args, 0)
}

// Set corrects values for the next try: parameters by "params.NAME", outputs of steps by "steps.NAME.outputs.NAME".
func (c *Client) Set(ctx context.Context, id statefs.ID, values map[string]any, args statefs.Args) (*Answer, error) {
	args.Values = make(map[string]json.RawMessage, len(values))
	for name, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("set %s of %s: %w", name, id, err)
		}
		args.Values[name] = raw
	}
	return c.Act(ctx, id, statefs.Set, args, 0)
}

// Approve lets an operation go on that waits for an approval.
func (c *Client) Approve(ctx context.Context, id statefs.ID, args statefs.Args) (*Answer, error) {
	return c.Act(ctx, id, statefs.Approve, args, 0)
}

// Reject ends an operation that waits for an approval.
func (c *Client) Reject(ctx context.Context, id statefs.ID, args statefs.Args) (*Answer, error) {
	return c.Act(ctx, id, statefs.Reject, args, 0)
}

// RetryStep is Retry from a step on: that one and all that need it are done again. Without a step it is the one at which a live operation
// stands, and of an ended one the first that is not done. With a wait above zero it returns when the request was carried out or that time is
// over; a new operation is there in any case when it returns.
func (c *Client) RetryStep(ctx context.Context, id statefs.ID, args statefs.Args, wait time.Duration) (*Retried, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return c.retry(ctx, id, query, args)
}

// StepOutput is what a step wrote in one of its runs. Whoever has it closes it.
type StepOutput struct {
	io.ReadCloser
	// Run is the number of that run, 0 when the step has not begun. Runs are those that are known of the step, the first one first.
	Run  int
	Runs []int
}

// StepOutput returns what a step wrote in a run, one of those of StepOutput.Runs, or with 0 in its last one. The error is an *[Error] with status 404 when there
// is no such operation, step or run.
func (c *Client) StepOutput(ctx context.Context, id statefs.ID, step string, run int) (*StepOutput, error) {
	query := url.Values{"step": {step}}
	if run != 0 {
		query.Set("run", strconv.Itoa(run))
	}
	resp, err := c.send(ctx, http.MethodGet, operationPath(id, "/log"), query, nil) //nolint:bodyclose // whoever has the output closes it
	if err != nil {
		return nil, fmt.Errorf("read the output of step %s of %s: %w", step, id, err)
	}
	out := &StepOutput{ReadCloser: resp.Body}
	out.Run, _ = strconv.Atoi(resp.Header.Get("X-Jobdir-Run")) // an older daemon does not say it
	for text := range strings.SplitSeq(resp.Header.Get("X-Jobdir-Runs"), ",") {
		if number, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
			out.Runs = append(out.Runs, number)
		}
	}
	return out, nil
}

// StepLog returns what a step wrote in its last run, at most the last bytes of it when last is above zero. The caller closes it. The error is
// an *[Error] with status 404 when there is no such operation or step.
func (c *Client) StepLog(ctx context.Context, id statefs.ID, step string, last int64) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, operationPath(id, "/log"), url.Values{"step": {step}}, nil)
	if err != nil {
		return nil, fmt.Errorf("read the output of step %s of %s: %w", step, id, err)
	}
	if over := resp.ContentLength - last; last > 0 && over > 0 {
		if _, err := io.CopyN(io.Discard, resp.Body, over); err != nil {
			_ = resp.Body.Close() // the first error counts
			return nil, fmt.Errorf("read the output of step %s of %s: %w", step, id, err)
		}
	}
	return resp.Body, nil
}
