package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// Operation is an operation as the daemon describes it.
type Operation struct {
	ID     statefs.ID      `json:"id"`
	Group  string          `json:"group,omitempty"`
	Job    string          `json:"job,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Tags   []string        `json:"tags,omitempty"`
	Lane   string          `json:"lane,omitempty"`
	Key    string          `json:"key,omitempty"`

	// State is that of the marker while the operation lives, and of the record when it has ended.
	State statefs.State `json:"state"`
	// Reason says why it is in its state, where that is not plain.
	Reason string `json:"reason,omitempty"`
	// DueAt is when it goes into the queue, or is tried again; nil when it waits for no time.
	DueAt *time.Time `json:"due_at,omitempty"`
	// Result is empty until the operation has ended.
	Result statefs.Result `json:"result,omitempty"`
	// Foreign says that a program keeps the operation which the daemon did not start.
	Foreign bool `json:"foreign,omitempty"`

	CreatedAt  time.Time  `json:"created_at,omitzero"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Transitions are the states it went through, oldest first.
	Transitions []statefs.Transited `json:"transitions,omitempty"`

	// Steps are those of its job in the order in which they are done, with how long each took; nil for a job without, and in lists of what has
	// ended. Acts is what persons did about them.
	Steps []steps.View `json:"steps,omitempty"`
	Acts  []steps.Act  `json:"acts,omitempty"`
	// AllDone says of one with steps that has its result whether its optional steps have ended too; nil while it has none.
	AllDone *bool `json:"all_done,omitempty"`
	// Attention says why it goes on only when a person acts, and what helps; nil when it does by itself.
	Attention *statefs.Attention `json:"attention,omitempty"`

	// Waiting says why it does not run; nil when it does.
	Waiting  *statefs.Waiting  `json:"waiting,omitempty"`
	Progress *statefs.Progress `json:"progress,omitempty"`
	// StalledAt is when the work was found to give no sign of life; nil while it does.
	StalledAt *time.Time     `json:"stalled_at,omitempty"`
	Error     *statefs.Fault `json:"error,omitempty"`
	// LogBytes is the length of the log.
	LogBytes int64 `json:"log_bytes,omitempty"`
	// Footer is there when the operation has ended.
	Footer json.RawMessage `json:"footer,omitempty"`

	// Raw is the whole JSON object that the daemon sent, with all members.
	Raw json.RawMessage `json:"-"`
}

// Since is when the operation entered its state; zero when that is not known, as for foreign ones.
func (o *Operation) Since() time.Time {
	if len(o.Transitions) == 0 {
		return o.CreatedAt
	}
	return o.Transitions[len(o.Transitions)-1].At
}

// Ended reports whether the operation has its result: also while optional steps of it go on.
func (o *Operation) Ended() bool { return o.State.Terminal() || o.State == statefs.Trailing }

// UnmarshalJSON keeps the whole object in Raw.
func (o *Operation) UnmarshalJSON(data []byte) error {
	type plain Operation
	if err := json.Unmarshal(data, (*plain)(o)); err != nil {
		return err
	}
	o.Raw = append(json.RawMessage(nil), data...)
	return nil
}

// Operation returns one operation, live or ended. The error is an *[Error] with status 404 when there is none.
func (c *Client) Operation(ctx context.Context, id statefs.ID) (*Operation, error) {
	var op Operation
	if err := c.call(ctx, http.MethodGet, operationPath(id, ""), nil, nil, &op); err != nil {
		return nil, fmt.Errorf("read operation %s: %w", id, err)
	}
	return &op, nil
}

// Operations returns the live operations in the order of submission. filter narrows them down by status, group, job and so on, see
// GET /api/v1/operations; with a status or a number it also finds what has ended. nil means all that live.
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
		var page struct {
			Operations []Operation `json:"operations"`
			Next       string      `json:"next"`
		}
		if err := c.call(ctx, http.MethodGet, "/api/v1/operations", query, nil, &page); err != nil {
			return nil, fmt.Errorf("list operations: %w", err)
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
