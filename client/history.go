package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// End is an operation in the completion feed: it has ended, or stopped for a person.
type End struct {
	Operation
	// FinishedSeq is its number in the feed.
	FinishedSeq uint64
	// NeedsPerson means that the operation has not ended: it is failed_manual, and a person must act.
	NeedsPerson bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *End) UnmarshalJSON(data []byte) error {
	var in api.Ended
	err := errors.Join(json.Unmarshal(data, &in), json.Unmarshal(data, &e.Operation))
	e.FinishedSeq, e.NeedsPerson = in.FinishedSeq, in.NeedsPerson
	return err
}

// Finished returns the ends with numbers above after, in order, and the number to pass as after in the next call. With
// a wait above zero it waits that long for the first end. A consumer that stores last gets each end exactly once, also
// across restarts of the daemon. The errors are those of List.
func (c *Client) Finished(ctx context.Context, after uint64, wait time.Duration) (ends []End, last uint64, err error) {
	query := waitQuery(wait)
	query.Set("after", strconv.FormatUint(after, 10))
	answer, err := fetch[api.Finished[End]](ctx, c.conn, "follow what ends", http.MethodGet, "/api/v1/finished", query, nil)
	if err != nil {
		return nil, after, err
	}
	return answer.Finished, answer.Last, nil
}

// Delete removes an ended operation, with its log and files. The error is an *[Error]: 409 when the operation is kept,
// 404 or 410 when it does not exist.
func (c *Client) Delete(ctx context.Context, id statefs.ID) error {
	return c.change(ctx, fmt.Sprintf("delete %s", id), http.MethodDelete, operationPath(id, ""), nil, nil)
}

// Pin protects an operation from pruning and deletion, or ends that.
func (c *Client) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	query := url.Values{"pinned": {strconv.FormatBool(pinned)}}
	return c.change(ctx, fmt.Sprintf("pin %s", id), http.MethodPost, operationPath(id, "/pin"), query, nil)
}

// The answer of a prune; package api has its members.
type (
	// Pruned is the result of a prune.
	Pruned = api.Pruned
	// PrunedOperation is a pruned operation.
	PrunedOperation = api.PrunedOperation
)

// Prune deletes the operations past their retention; with dryRun it changes nothing.
func (c *Client) Prune(ctx context.Context, dryRun bool) (*Pruned, error) {
	query := url.Values{"dry_run": {strconv.FormatBool(dryRun)}}
	return fetch[Pruned](ctx, c.conn, "prune", http.MethodPost, "/api/v1/prune", query, nil)
}
