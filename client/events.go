package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jobdir/jobdir/statefs/api"
)

// The messages of the event log; package api has their members.
type (
	// Event is one event of the daemon's event log.
	Event = api.Event
	// LaneChange is a change of a lane.
	LaneChange = api.LaneChange
	// EventDelivery is a change of a delivery.
	EventDelivery = api.EventDelivery
	// EventTarget is a change of a delivery target.
	EventTarget = api.EventTarget
	// EventSweep is the result of a sweep.
	EventSweep = api.EventSweep
	// EventGap is a range of missing events, and why they are missing.
	EventGap = api.EventGap
)

// Events follows the events of the daemon. filter has the parameters of GET /api/v1/events; without after, Events
// yields only new events. It continues after a restart of the daemon or a lost connection where it was, see
// [WithReconnectTimeout]; missing events are reported as an event of type gap. It ends with an error: an *[Error]
// when the daemon refuses, the cause of ctx when that ends, or why the daemon cannot be reached.
func (c *Client) Events(ctx context.Context, filter url.Values) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		away := outage{conn: c.conn}
		query := url.Values{}
		maps.Copy(query, filter)
		for {
			further, stopped, err := c.eventsOnce(ctx, query, away.connected, yield)
			if stopped {
				return
			}
			if isUnavailable(err) && away.retry(ctx, err, further) {
				continue
			}
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			yield(nil, fmt.Errorf("follow events: %w", err))
			return
		}
	}
}

// eventsOnce follows over one connection, and sets after in query to the last event taken. further reports whether
// anything arrived.
func (c *conn) eventsOnce(ctx context.Context, query url.Values, connected func(),
	yield func(*Event, error) bool,
) (further, stopped bool, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/api/v1/events", query, nil)
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	connected()
	frames := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		data, id, err := readFrame(frames)
		if err != nil {
			return further, false, &noAnswerError{c.address, err}
		}
		if data != nil {
			e := &Event{Raw: data}
			if err := json.Unmarshal(data, e); err != nil {
				return further, false, fmt.Errorf("the daemon sent no event: %w", err)
			}
			further = true
			if !yield(e, nil) {
				return further, true, nil
			}
		}
		if _, bad := strconv.ParseUint(id, 10, 64); bad == nil {
			query.Set("after", id) // only after the caller took the event
		}
	}
}

// maxFrame bounds one event, in bytes.
const maxFrame = 4 << 20

// readFrame reads one server-sent event; data is nil when it has none. A truncated event is discarded.
func readFrame(r *bufio.Reader) (data []byte, id string, err error) {
	for size := 0; ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, "", err
		}
		if size += len(line); size > maxFrame {
			return nil, "", errors.New("an event is too large")
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			return data, id, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "id":
			id = string(value)
		}
	}
}
