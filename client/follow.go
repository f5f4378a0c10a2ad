package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/stream"
)

// Footer is the end of a stream: the result of the operation.
type Footer struct {
	Result    statefs.Result `json:"result"`
	State     statefs.State  `json:"state"`
	Total     *int64         `json:"total"`
	Processed int64          `json:"processed"`
	Failed    int64          `json:"failed"`
	Error     *statefs.Fault `json:"error"`

	// Raw is the whole object, including everything that the work returned.
	Raw json.RawMessage `json:"-"`
}

// ParseFooter parses the object of a footer.
func ParseFooter(object []byte) (*Footer, error) {
	f := &Footer{Raw: append(json.RawMessage(nil), object...)}
	var parts struct {
		*Footer
		// Error is an object, or any value if the work returns its own.
		Error json.RawMessage `json:"error"`
	}
	parts.Footer = f
	if err := json.Unmarshal(object, &parts); err != nil {
		return nil, fmt.Errorf("read the footer: %w", err)
	}
	f.Error = fault(parts.Error)
	return f, nil
}

func fault(data json.RawMessage) *statefs.Fault {
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	var f statefs.Fault
	if json.Unmarshal(data, &f) == nil || json.Unmarshal(data, &f.Message) == nil {
		return &f
	}
	return &statefs.Fault{Message: string(data)}
}

// CutError means that a stream ended without its footer: the daemon stopped or the connection broke. The operation may
// go on. Following again from Offset continues the log without a gap.
type CutError struct {
	ID     statefs.ID
	Offset int64
	Err    error
}

func (e *CutError) Error() string {
	return fmt.Sprintf("the stream of %s was cut off at byte %d of the log: %v", e.ID, e.Offset, e.Err)
}

func (e *CutError) Unwrap() error { return e.Err }

// Follow writes the log of an operation from byte offset on to w, as it grows, and returns the footer when the
// operation ends. After a restart of the daemon it continues where it was, see [WithReconnectTimeout]. Follow returns
// early with the error of w, the cause of ctx, or a *[CutError].
func (c *Client) Follow(ctx context.Context, id statefs.ID, offset int64, w io.Writer) (*Footer, error) {
	return c.FollowTo(ctx, id, offset, stream.Receiver{Log: func(text []byte) error {
		_, err := w.Write(text)
		return err
	}})
}

// FollowRaw is Follow, but writes the stream as the daemon sends it, with header, tags and footer.
func (c *Client) FollowRaw(ctx context.Context, id statefs.ID, offset int64, w io.Writer) (*Footer, error) {
	raw := stream.NewComposer(w)
	return c.FollowTo(ctx, id, offset, stream.Receiver{Header: raw.Header, Log: raw.Log, Footer: raw.Footer})
}

// FollowTo is Follow, but passes the parts of the stream to a receiver as they arrive. The header is passed once per
// connection.
func (c *Client) FollowTo(ctx context.Context, id statefs.ID, offset int64, to stream.Receiver) (*Footer, error) {
	return c.retryFollow(ctx, id, offset, func(offset int64, connected func()) (*Footer, error) {
		return c.followOnce(ctx, id, offset, to, connected)
	})
}

// followOnce follows over a single connection.
func (c *conn) followOnce(ctx context.Context, id statefs.ID, offset int64, to stream.Receiver,
	connected func(),
) (*Footer, error) {
	query := url.Values{"format": {"stream"}}
	if offset > 0 {
		query.Set("offset", strconv.FormatInt(offset, 10))
	}
	resp, err := c.send(ctx, http.MethodGet, operationPath(id, "/stream"), query, nil)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", id, err)
	}
	defer resp.Body.Close()
	connected()
	var footer *Footer
	written := to.Footer
	to.Footer = func(object []byte) (err error) {
		if footer, err = ParseFooter(object); err == nil && written != nil {
			err = written(object)
		}
		return err
	}
	parser := stream.NewParser(to, 0)
	out := &writer{to: parser}
	_, err = io.Copy(out, resp.Body)
	switch {
	case footer != nil:
		return footer, out.err
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case out.err != nil:
		return nil, out.err
	case err == nil:
		err = parser.Close()
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == nil {
		err = stream.ErrIncomplete
	}
	return nil, &CutError{ID: id, Offset: offset + parser.LogBytes(), Err: err}
}

// Wait waits until an operation has ended and returns its footer, without its log. After a restart of the daemon it
// waits on, see [WithReconnectTimeout]. Wait returns early with the cause of ctx, with a *[NeedsPersonError] when a
// person has to act first, or with a *[CutError].
func (c *Client) Wait(ctx context.Context, id statefs.ID) (*Footer, error) {
	return c.retryFollow(ctx, id, 0, func(_ int64, connected func()) (*Footer, error) {
		return c.waitOnce(ctx, id, connected)
	})
}

func (c *conn) waitOnce(ctx context.Context, id statefs.ID, connected func()) (*Footer, error) {
	resp, err := c.send(ctx, http.MethodGet, operationPath(id, "/stream"), url.Values{"format": {"json"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("wait for %s: %w", id, err)
	}
	defer resp.Body.Close()
	connected()
	object, err := io.ReadAll(io.LimitReader(resp.Body, stream.DefaultMaxFooter))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err == nil && !json.Valid(object) {
		err = stream.ErrIncomplete
	}
	if err != nil {
		return nil, &CutError{ID: id, Err: err}
	}
	if resp.StatusCode == http.StatusAccepted {
		needs := api.NoFooter{ID: id}
		if err := json.Unmarshal(object, &needs); err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		return nil, &NeedsPersonError{ID: needs.ID, State: needs.State, Message: needs.Message}
	}
	return ParseFooter(object)
}

// retryFollow calls try with the current offset until it returns without being cut off, or the timeout is over.
func (c *conn) retryFollow(ctx context.Context, id statefs.ID, offset int64,
	try func(offset int64, connected func()) (*Footer, error),
) (*Footer, error) {
	away := outage{conn: c}
	for {
		footer, err := try(offset, away.connected)
		cut, isCut := errors.AsType[*CutError](err)
		further := isCut && cut.Offset > offset
		if further {
			offset = cut.Offset
		}
		if !isCut && !isUnavailable(err) {
			return footer, err
		}
		if !away.retry(ctx, err, further) {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			if !away.deadline.IsZero() && !isCut {
				err = &CutError{ID: id, Offset: offset, Err: err}
			}
			return nil, err
		}
	}
}

// writer stores the error of its writer, to distinguish it from a truncated stream.
type writer struct {
	to  io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// Log returns the raw log of an operation from byte offset up to its current end. The caller closes it. The log of an
// operation that has not begun is empty.
func (c *Client) Log(ctx context.Context, id statefs.ID, offset int64) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, operationPath(id, "/log"), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", id, err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, offset); err != nil && !errors.Is(err, io.EOF) {
		_ = resp.Body.Close() // the first error counts
		return nil, fmt.Errorf("read the log of %s: %w", id, err)
	}
	return resp.Body, nil
}
