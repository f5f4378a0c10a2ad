package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Operation is an operation as the daemon describes it: the members of [api.Operation], and of [api.Ended] in a list of
// ended ones, that a program needs most. Raw has all of them.
type Operation struct {
	ID     statefs.ID      `json:"id"`
	Group  string          `json:"group,omitempty"`
	Job    string          `json:"job,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Tags   []string        `json:"tags,omitempty"`
	Lane   string          `json:"lane,omitempty"`
	Key    string          `json:"key,omitempty"`

	// State is the state in the marker while the operation is live, and in the record when it has ended.
	State statefs.State `json:"state"`
	// Reason explains the state, where needed.
	Reason string `json:"reason,omitempty"`
	// DueAt is when the operation is queued or retried; nil when it does not wait for a time.
	DueAt *time.Time `json:"due_at,omitempty"`
	// Result is empty until the operation has ended.
	Result statefs.Result `json:"result,omitempty"`
	// Foreign means that a program that the daemon did not start owns the operation.
	Foreign bool `json:"foreign,omitempty"`

	CreatedAt  time.Time  `json:"created_at,omitzero"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Transitions are the past state changes, oldest first.
	Transitions []statefs.PastTransition `json:"transitions,omitempty"`

	// Steps are in the order of execution, with the duration of each; nil for a job without steps, and in lists of
	// ended operations. Acts are the actions of persons on them.
	Steps []steps.View         `json:"steps,omitempty"`
	Acts  []steps.ActionRecord `json:"acts,omitempty"`
	// AllDone is set once an operation with steps has its result: whether its optional steps have ended too.
	AllDone *bool `json:"all_done,omitempty"`
	// Attention is why a person has to act, and which commands help; nil when the operation goes on by itself.
	Attention *statefs.Attention `json:"attention,omitempty"`

	// Waiting is why the operation does not run; nil when it runs.
	Waiting  *statefs.Waiting  `json:"waiting,omitempty"`
	Progress *statefs.Progress `json:"progress,omitempty"`
	// StalledAt is when the work was found to give no signs of life; nil while it gives them.
	StalledAt *time.Time     `json:"stalled_at,omitempty"`
	Error     *statefs.Fault `json:"error,omitempty"`
	// LogBytes is the length of the log.
	LogBytes int64 `json:"log_bytes,omitempty"`
	// Footer is set when the operation has ended.
	Footer json.RawMessage `json:"footer,omitempty"`

	// Raw is the whole JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// Since returns when the operation entered its state; zero if unknown, as for foreign operations.
func (o *Operation) Since() time.Time {
	if len(o.Transitions) == 0 {
		return o.CreatedAt
	}
	return o.Transitions[len(o.Transitions)-1].At
}

// Ended reports whether the operation has its result, also while its optional steps run.
func (o *Operation) Ended() bool { return o.State.Terminal() || o.State == statefs.Trailing }

// UnmarshalJSON implements json.Unmarshaler and keeps the whole object in Raw.
func (o *Operation) UnmarshalJSON(data []byte) error {
	type plain Operation
	if err := json.Unmarshal(data, (*plain)(o)); err != nil {
		return err
	}
	o.Raw = append(json.RawMessage(nil), data...)
	return nil
}

// Operation returns one operation, live or ended. The error is an *[Error] with status 404 if it does not exist.
func (c *Client) Operation(ctx context.Context, id statefs.ID) (*Operation, error) {
	return fetch[Operation](ctx, c.conn, "read operation "+id.String(), http.MethodGet, operationPath(id, ""), nil, nil)
}

// Page is a page of a list; package api has its members. Next is "" on the last one.
type Page = api.Page[Operation, string]

// List returns one page of the matching operations, live and ended, the newest first. The parameters are those of GET
// /api/v1/operations. While the daemon builds its index, the error is an *[Error] with status 503 and RetryAfter.
func (c *Client) List(ctx context.Context, filter url.Values) (*Page, error) {
	return fetch[Page](ctx, c.conn, "list operations", http.MethodGet, "/api/v1/operations", filter, nil)
}

// Operations returns the live operations in the order of submission. filter restricts them by status, group, job and so
// on, see GET /api/v1/operations; with a status or a number it also finds ended operations. nil means all live ones.
func (c *Client) Operations(ctx context.Context, filter url.Values) ([]Operation, error) {
	query := url.Values{"limit": {"200"}}
	maps.Copy(query, filter)
	if !query.Has("status") && !query.Has("number") {
		for _, state := range statefs.LiveStates() {
			query.Add("status", string(state))
		}
	}
	var all []Operation
	for {
		page, err := c.List(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Operations...)
		if page.Next == "" {
			slices.SortFunc(all, func(a, b Operation) int { return cmp.Compare(a.ID.Sequence(), b.ID.Sequence()) })
			return all, nil
		}
		if query.Get("next") == page.Next {
			return nil, errors.New("list operations: the daemon sends the same page again")
		}
		query.Set("next", page.Next)
	}
}

func operationPath(id statefs.ID, rest string) string {
	return "/api/v1/operations/" + url.PathEscape(id.String()) + rest
}
