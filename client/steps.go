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

// StepService reads and changes the steps of one operation; see [Client.Steps].
type StepService struct {
	*conn

	id statefs.ID
}

// Steps returns the steps of an operation. It sends nothing.
func (c *Client) Steps(id statefs.ID) StepService { return StepService{c.conn, id} }

// Request acts on a step: skip, set, approve, reject, or the retry of a live operation. Without a step in args it acts
// on the current step. It returns when the request is durable or, with a wait above zero, when it was carried out or
// the wait is over. The error is an *[Error]: 400 when args are invalid, 404 or 410 when there is no such operation,
// 409 when the request does not apply in its state.
func (s StepService) Request(ctx context.Context, ask statefs.Action, args statefs.Args, wait time.Duration) (*Answer, error) {
	return act(ctx, s.conn, s.id, ask, waitQuery(wait), args)
}

// Skip continues an operation without a step that has failed or waits for an approval.
func (s StepService) Skip(ctx context.Context, args statefs.Args) (*Answer, error) {
	return s.Request(ctx, statefs.Skip, args, 0)
}

// Set corrects values for the next attempt: parameters by "params.NAME", outputs by "steps.NAME.outputs.NAME".
func (s StepService) Set(ctx context.Context, values map[string]any, args statefs.Args) (*Answer, error) {
	args.Values = make(map[string]json.RawMessage, len(values))
	for name, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("set %s of %s: %w", name, s.id, err)
		}
		args.Values[name] = raw
	}
	return s.Request(ctx, statefs.Set, args, 0)
}

// Approve continues an operation that waits for an approval.
func (s StepService) Approve(ctx context.Context, args statefs.Args) (*Answer, error) {
	return s.Request(ctx, statefs.Approve, args, 0)
}

// Reject ends an operation that waits for an approval.
func (s StepService) Reject(ctx context.Context, args statefs.Args) (*Answer, error) {
	return s.Request(ctx, statefs.Reject, args, 0)
}

// Retry is [Client.Retry] from a step on: that step and all of its dependents are repeated. Without a step it begins at
// the current step of a live operation, or at the first step that is not done of an ended one. With a wait above zero
// it returns when the request was carried out or the wait is over; a new operation always exists when it returns.
func (s StepService) Retry(ctx context.Context, args statefs.Args, wait time.Duration) (*Retried, error) {
	return s.retry(ctx, s.id, waitQuery(wait), args)
}

// StepOutput is the output of a step in one of its runs. The caller closes it.
type StepOutput struct {
	io.ReadCloser
	// Run is the number of that run, 0 when the step has not begun. Runs are all known runs of the step, the first one
	// first.
	Run  int
	Runs []int
}

// Output returns the output of a step in a run: one of StepOutput.Runs, or 0 for its last one. The error is an
// *[Error] with status 404 when there is no such operation, step or run.
func (s StepService) Output(ctx context.Context, step string, run int) (*StepOutput, error) {
	query := url.Values{"step": {step}}
	if run != 0 {
		query.Set("run", strconv.Itoa(run))
	}
	resp, err := s.send(ctx, http.MethodGet, operationPath(s.id, "/log"), query, nil) //nolint:bodyclose // by the caller
	if err != nil {
		return nil, fmt.Errorf("read the output of step %s of %s: %w", step, s.id, err)
	}
	out := &StepOutput{ReadCloser: resp.Body}
	out.Run, _ = strconv.Atoi(resp.Header.Get("X-Jobdir-Run")) // missing from older daemons
	for text := range strings.SplitSeq(resp.Header.Get("X-Jobdir-Runs"), ",") {
		if number, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
			out.Runs = append(out.Runs, number)
		}
	}
	return out, nil
}

// Log returns the output of a step in its last run, or if last is above zero, at most its last bytes. The caller
// closes it. The error is an *[Error] with status 404 when there is no such operation or step.
func (s StepService) Log(ctx context.Context, step string, last int64) (io.ReadCloser, error) {
	var part [][2]string
	if last > 0 {
		part = append(part, [2]string{"Range", fmt.Sprintf("bytes=-%d", last)})
	}
	resp, err := s.send(ctx, http.MethodGet, operationPath(s.id, "/log"), url.Values{"step": {step}}, nil, part...)
	if err != nil {
		return nil, fmt.Errorf("read the output of step %s of %s: %w", step, s.id, err)
	}
	// A proxy may answer with the whole output.
	if over := resp.ContentLength - last; last > 0 && over > 0 {
		if _, err := io.CopyN(io.Discard, resp.Body, over); err != nil {
			_ = resp.Body.Close() // the first error counts
			return nil, fmt.Errorf("read the output of step %s of %s: %w", step, s.id, err)
		}
	}
	return resp.Body, nil
}
