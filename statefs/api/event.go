package api

import (
	"encoding/json"
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
