package events

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Type is the type of an event.
type Type string

// The types of events.
const (
	// Transition: an operation changed its state. The first one of an operation has no From, and Cause is submit.
	Transition Type = "transition"
	// StepChanged: a step of an operation changed its status.
	StepChanged Type = "step"
	// Progress: the progress of work changed; at most one per second for each operation.
	Progress Type = "progress"
	// WaitReason: the reason why an operation waits changed.
	WaitReason Type = "waiting"
	// Stalled: work stopped giving signs of life, or gives them again.
	Stalled Type = "stalled"
	// LaneChanged: a lane was paused, resumed, closed or opened, or its capacity changed.
	LaneChanged Type = "lane"
	// Delivery: a result was delivered, needs a person, was dropped, or is retried on request.
	Delivery Type = "delivery"
	// TargetChanged: a delivery target went down or is up again.
	TargetChanged Type = "target"
	// Swept: the storage was swept.
	Swept Type = "sweep"
	// Missing: events are missing here.
	Missing Type = "gap"
)

// Types lists the types.
func Types() []Type {
	return []Type{
		Transition, StepChanged, Progress, WaitReason, Stalled, LaneChanged, Delivery,
		TargetChanged, Swept, Missing,
	}
}

// Event is one event. Members that do not apply to its type are omitted.
type Event struct {
	// Seq is the number of the event, which the log assigns.
	Seq  uint64    `json:"seq"`
	Type Type      `json:"type"`
	At   time.Time `json:"at"`

	// ID and the following members describe the operation of the event.
	ID    statefs.ID `json:"id,omitzero"`
	Group string     `json:"group,omitempty"`
	Job   string     `json:"job,omitempty"`
	// Lane is the lane of the operation, or the one that changed.
	Lane string   `json:"lane,omitempty"`
	Key  string   `json:"key,omitempty"`
	Tags []string `json:"tags,omitempty"`
	Run  int      `json:"run,omitempty"`

	// From, To and Cause describe a transition; Result and FinishedSeq are set if it is the end, Error if an
	// attempt failed.
	From        statefs.State  `json:"from,omitempty"`
	To          statefs.State  `json:"to,omitempty"`
	Cause       statefs.Cause  `json:"cause,omitempty"`
	Result      statefs.Result `json:"result,omitempty"`
	Error       *statefs.Fault `json:"error,omitempty"`
	FinishedSeq uint64         `json:"finished_seq,omitempty"`

	// Step is the name of the step that changed, Status its new status; Number is its position among the
	// Total steps of the operation, from 1. ErrorCode and Error are why its last attempt failed, Retries how
	// often it was retried, and Run its current run.
	Step      string       `json:"step,omitempty"`
	Status    steps.Status `json:"status,omitempty"`
	Number    int          `json:"number,omitempty"`
	Total     int          `json:"total,omitempty"`
	Optional  bool         `json:"optional,omitempty"`
	Retries   int          `json:"retries,omitempty"`
	ErrorCode string       `json:"error_code,omitempty"`

	Progress *statefs.Progress `json:"progress,omitempty"`
	Waiting  *Waiting          `json:"waiting,omitempty"`
	// Stalled is true if the work gives no sign of life, and false when it gives one again.
	Stalled *bool       `json:"stalled,omitempty"`
	Change  *LaneChange `json:"change,omitempty"`
	// Delivery is the new state of a delivery of the operation, Target that of a target.
	Delivery *Delivered `json:"delivery,omitempty"`
	Target   *Target    `json:"target,omitempty"`
	Sweep    *Sweep     `json:"sweep,omitempty"`
	Gap      *Gap       `json:"gap,omitempty"`
}

// Waiting is why an operation does not run.
type Waiting = statefs.Waiting

// LaneChange is a change of a lane.
type LaneChange struct {
	// What is the change of the lane, or of all lanes if the event's lane is all: one of paused, resumed,
	// closed, opened, capacity, breaker_opened, breaker_closed.
	What     string     `json:"what"`
	Capacity *int       `json:"capacity,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Delivered is the state of a delivery.
type Delivered struct {
	// Target is the position of the target in the job's list, from 1, Kind its kind, and Name the destination
	// at the target.
	Target int                    `json:"target"`
	Kind   string                 `json:"kind"`
	Status statefs.DeliveryStatus `json:"status"`
	Name   string                 `json:"name,omitempty"`
	// Location and Bytes describe what was delivered; Error is why it waits for a person.
	Location string `json:"location,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Error    string `json:"error,omitempty"`
	// By is the name of the requester, if a person requested it.
	By string `json:"by,omitempty"`
}

// Target is the state of a delivery target. Name contains no secrets.
type Target struct {
	Name    string `json:"name"`
	Down    bool   `json:"down"`
	Pending int    `json:"pending"`
	Error   string `json:"error,omitempty"`
}

// Sweep is the result of a sweep.
type Sweep struct {
	Findings int `json:"findings"`
	// Files are the names of the first files, sorted.
	Files []string `json:"files,omitempty"`
}

// Gap describes missing events.
type Gap struct {
	// From and To are the first and the last number that may be missing; To is From-1 if none is, which
	// occurs only with GapSlow.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Reason is one of GapReasons.
	Reason string `json:"reason"`
}

// The reasons of a gap.
const (
	// GapCrash: the daemon ended without closing the log, so its end may be missing.
	GapCrash = "crash"
	// GapRetention: they are older than the retention.
	GapRetention = "retention"
	// GapOverflow: events arrived faster than they could be written.
	GapOverflow = "overflow"
	// GapLost: they could not be written, or cannot be read.
	GapLost = "lost"
	// GapUnknown: the reader resumed from a number that no event has yet; it belongs to another storage.
	GapUnknown = "unknown_number"
	// GapSlow: the reader accepted nothing for too long and is disconnected. It is the last event of the
	// connection; all missing events may still be stored.
	GapSlow = "slow"
)
