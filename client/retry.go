package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jobdir/jobdir/statefs"
)

// Retried is the result of a retry: the answer to a request for a live operation, or the new operation that retries an
// ended one.
type Retried struct {
	Answer    *Answer    `json:"answer,omitempty"`
	Operation *Operation `json:"operation,omitempty"`
}

// Retry starts an operation again: a live operation that waits for a person or for its next attempt, or else a new
// operation that inherits the successful items of an ended one. With failedItems the new operation only repeats the
// failed items. The error is an *[Error] with status 409 when there is nothing to retry.
func (c *Client) Retry(ctx context.Context, id statefs.ID, failedItems bool) (*Retried, error) {
	query := url.Values{}
	if failedItems {
		query.Set("failed_items", "true")
	}
	return c.retry(ctx, id, query, nil)
}

func (c *conn) retry(ctx context.Context, id statefs.ID, query url.Values, body any) (*Retried, error) {
	var raw json.RawMessage
	if err := c.call(ctx, http.MethodPost, operationPath(id, "/retry"), query, body, &raw); err != nil {
		return nil, fmt.Errorf("retry %s: %w", id, err)
	}
	again := &Retried{Answer: new(Answer)}
	err := json.Unmarshal(raw, again.Answer)
	if err == nil && again.Answer.Action == "" { // a new operation
		again.Answer = nil
		err = json.Unmarshal(raw, &again.Operation)
	}
	if err != nil {
		return nil, fmt.Errorf("retry %s: the answer is not what a jobdir daemon sends: %w", id, err)
	}
	return again, nil
}
