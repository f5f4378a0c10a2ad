package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// remote is the backend of a daemon. What it does not have itself is a method of the client.
type remote struct{ *client.Client }

// Remote returns the backend of a daemon.
func Remote(c *client.Client) *Backend {
	r := remote{c}
	return &Backend{Operations: r, Logs: r, Requests: r, Lanes: c.Lanes(), Storage: r, Client: c, Close: c.Close}
}

// stepActionTimeout is how long a daemon may take to carry out a request about a step, so that the next
// command sees its effect. It usually takes milliseconds.
const stepActionTimeout = 5 * time.Second

// retryTimeout is how long a daemon may take to carry out the retry of a live operation.
const retryTimeout = time.Minute

func (r remote) LiveIDs(ctx context.Context) ([]statefs.ID, error) {
	operations, err := r.Operations(ctx, nil)
	return idsOf(operations), err
}

func (r remote) Numbered(ctx context.Context, number uint64) ([]statefs.ID, error) {
	operations, err := r.Operations(ctx, url.Values{"number": {strconv.FormatUint(number, 10)}})
	return idsOf(operations), err
}

func idsOf(operations []client.Operation) (ids []statefs.ID) {
	for i := range operations {
		ids = append(ids, operations[i].ID)
	}
	return ids
}

func (r remote) Live(ctx context.Context, attention bool) ([]client.Operation, error) {
	var filter url.Values
	if attention {
		filter = url.Values{"needs_attention": {"true"}}
	}
	return r.Operations(ctx, filter)
}

func (r remote) Ended(ctx context.Context, q *history.Query) (*client.Page, error) {
	filter := url.Values{"limit": {strconv.Itoa(q.Limit)}}
	setGiven(filter, map[string]string{
		"status": list(q.Statuses), "result": list(q.Results), "job": q.Job, "group": q.Group, "key": q.Key, "tag": q.Tag,
		"q": q.Text,
	})
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			filter.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	return r.List(ctx, filter)
}

// setGiven sets the values that are not empty.
func setGiven(filter url.Values, values map[string]string) {
	for name, value := range values {
		if value != "" {
			filter.Set(name, value)
		}
	}
}

func list[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ",")
}

func (r remote) StepOutput(ctx context.Context, id statefs.ID, step string, run int) (*client.StepOutput, error) {
	return r.Steps(id).Output(ctx, step, run)
}

func (r remote) StepLog(ctx context.Context, id statefs.ID, step string, last int64) (io.ReadCloser, error) {
	return r.Steps(id).Log(ctx, step, last)
}

func (r remote) Submit(ctx context.Context, data json.RawMessage) (*Submitted, error) {
	submitted, err := r.SubmitJSON(ctx, data)
	return &Submitted{Operations: submitted}, err
}

func (r remote) TypedParams(ctx context.Context, group, job string, pairs map[string]string) (any, error) {
	typed, err := r.Client.TypedParams(ctx, group, job, pairs)
	if err != nil {
		return nil, fmt.Errorf("start %s/%s: %w", group, job, err)
	}
	return typed, nil
}

func (r remote) Request(ctx context.Context, id statefs.ID, q *Request) (*client.Answer, error) {
	if !q.Action.Spec().OnStep {
		return r.Client.Request(ctx, id, q.Action, q.Wait, q.Params...)
	}
	args := q.Args
	if len(q.Values) > 0 {
		op, err := r.Operation(ctx, id)
		if err != nil {
			return nil, err
		}
		types := make(map[string]string)
		if job, err := r.Job(ctx, op.Group, op.Job); err == nil { // on an error the daemon reports the cause
			for _, p := range job.Params {
				types[p.Name] = p.Type
			}
		}
		if err := setValues(types, q.Values, &args); err != nil {
			return nil, err
		}
	}
	return r.Steps(id).Request(ctx, q.Action, args, cmp.Or(q.Wait, stepActionTimeout))
}

// Retry sends the user's name only for an operation with steps, whose record keeps it.
func (r remote) Retry(ctx context.Context, id statefs.ID, q *Retry) (*client.Retried, error) {
	if q.FailedItems && !q.Await {
		return r.Client.Retry(ctx, id, true)
	}
	op, err := r.Operation(ctx, id)
	if err != nil {
		return nil, err
	}
	onStep := len(op.Steps) > 0 || q.Args.Step != ""
	switch {
	case q.Await && op.State.Live() && onStep:
		answer, err := r.Steps(id).Request(ctx, statefs.Retry, q.Args, retryTimeout)
		return &client.Retried{Answer: answer}, err
	case q.Await && op.State.Live():
		answer, err := r.Client.Request(ctx, id, statefs.Retry, retryTimeout)
		return &client.Retried{Answer: answer}, err
	case q.FailedItems || !onStep:
		return r.Client.Retry(ctx, id, q.FailedItems)
	}
	var wait time.Duration
	if !op.Ended() {
		wait = stepActionTimeout
	}
	return r.Steps(id).Retry(ctx, q.Args, wait)
}

// Outbox reads as many pages as the query wants.
func (r remote) Outbox(ctx context.Context, q *OutboxQuery) (*client.Outbox, error) {
	filter := url.Values{"status": q.Status, "kind": q.Kind, "limit": {"200"}}
	setGiven(filter, map[string]string{"job": q.Job, "target": q.Target, "older_than": q.OlderThan})
	var entries []statefs.OutboxItem
	for {
		if q.Limit > 0 {
			filter.Set("limit", strconv.Itoa(min(q.Limit-len(entries), 200)))
		}
		page, err := r.Deliveries().List(ctx, filter)
		if err != nil {
			return nil, err
		}
		page.Entries = append(entries, page.Entries...)
		if entries = page.Entries; page.Next == nil || q.Limit > 0 && len(entries) >= q.Limit {
			return page, nil
		}
		filter.Set("next", *page.Next)
	}
}

func (r remote) RequestDelivery(ctx context.Context, entry string, action statefs.DeliveryAction, args statefs.Args,
	wait time.Duration,
) ([]client.DeliveryAnswer, error) {
	answer, err := r.Deliveries().Request(ctx, entry, action, args, wait)
	if err != nil {
		return nil, err
	}
	return []client.DeliveryAnswer{*answer}, nil
}
