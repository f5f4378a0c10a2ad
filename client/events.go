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
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Event is one event of the daemon's event log. Fields that do not apply to a type are zero.
type Event struct {
	// Seq is the number of the event, from which a reader continues. For a gap it is the last missing number, or a
	// number of its own.
	Seq uint64 `json:"seq"`
	// Type is transition, step, progress, waiting, stalled, lane, delivery, target, sweep or gap.
	Type string    `json:"type"`
	At   time.Time `json:"at"`

	ID    statefs.ID `json:"id,omitzero"`
	Group string     `json:"group,omitempty"`
	Job   string     `json:"job,omitempty"`
	Lane  string     `json:"lane,omitempty"`
	Key   string     `json:"key,omitempty"`
	Tags  []string   `json:"tags,omitempty"`
	Run   int        `json:"run,omitempty"`

	// From, To and Cause describe a transition; Result, Error and FinishedSeq are set when it ends the operation.
	From        statefs.State  `json:"from,omitempty"`
	To          statefs.State  `json:"to,omitempty"`
	Cause       statefs.Cause  `json:"cause,omitempty"`
	Result      statefs.Result `json:"result,omitempty"`
	Error       *statefs.Fault `json:"error,omitempty"`
	FinishedSeq uint64         `json:"finished_seq,omitempty"`

	// Step is the step that changed and Status its new status; Number is its place among the Total steps of its
	// operation, from 1, and Run its run. ErrorCode is why its last attempt failed, Retries how often it was retried.
	Step      string       `json:"step,omitempty"`
	Status    steps.Status `json:"status,omitempty"`
	Number    int          `json:"number,omitempty"`
	Total     int          `json:"total,omitempty"`
	Optional  bool         `json:"optional,omitempty"`
	Retries   int          `json:"retries,omitempty"`
	ErrorCode string       `json:"error_code,omitempty"`

	Progress *statefs.Progress `json:"progress,omitempty"`
	Waiting  *statefs.Waiting  `json:"waiting,omitempty"`
	// Stalled is true when the work stops giving signs of life, false when it gives one again.
	Stalled *bool       `json:"stalled,omitempty"`
	Change  *LaneChange `json:"change,omitempty"`
	// Delivery describes a change of a delivery of the operation, Target a change of a delivery target.
	Delivery *EventDelivery `json:"delivery,omitempty"`
	Target   *EventTarget   `json:"target,omitempty"`
	Sweep    *EventSweep    `json:"sweep,omitempty"`
	Gap      *EventGap      `json:"gap,omitempty"`

	// Raw is the whole object, including fields that this version does not know.
	Raw json.RawMessage `json:"-"`
}

// LaneChange is a change of a lane: paused, resumed, closed, opened, capacity, breaker_opened or breaker_closed.
type LaneChange struct {
	What     string     `json:"what"`
	Capacity *int       `json:"capacity,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// EventDelivery is a change of a delivery.
type EventDelivery struct {
	// Target is the place of the target in the job's list, from 1, Kind its kind, and Name the object's name there.
	Target   int                    `json:"target"`
	Kind     string                 `json:"kind"`
	Status   statefs.DeliveryStatus `json:"status"`
	Name     string                 `json:"name,omitempty"`
	Location string                 `json:"location,omitempty"`
	Bytes    int64                  `json:"bytes,omitempty"`
	Error    string                 `json:"error,omitempty"`
	// By is the requester of a retry or drop, if any.
	By string `json:"by,omitempty"`
}

// EventTarget is a change of a delivery target.
type EventTarget struct {
	Name    string `json:"name"`
	Down    bool   `json:"down"`
	Pending int    `json:"pending"`
	Error   string `json:"error,omitempty"`
}

// EventSweep is the result of a sweep.
type EventSweep struct {
	Findings int      `json:"findings"`
	Files    []string `json:"files,omitempty"`
}

// EventGap is a range of missing events, and why they are missing: crash, retention, overflow, lost, unknown_number or
// slow. slow means that this program did not read for too long; Events continues at From by itself.
type EventGap struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
}

// Events follows the events of the daemon. filter has the parameters of GET /api/v1/events; without after, Events
// yields only new events. It continues after a restart of the daemon or a lost connection where it was, see
// [WithReconnectTimeout]; missing events are reported as an event of type gap. It ends with an error: an *[Error]
// when the daemon refuses, the cause of ctx when that ends, or why the daemon cannot be reached.
func (c *Client) Events(ctx context.Context, filter url.Values) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		away := outage{client: c}
		query := maps.Clone(filter)
		if query == nil {
			query = url.Values{}
		}
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
func (c *Client) eventsOnce(ctx context.Context, query url.Values, connected func(),
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
