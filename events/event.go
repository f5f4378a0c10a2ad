package events

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// Type says what an event tells of.
type Type string

// The types of events.
const (
	// Transition: an operation changed its state. The first one of an operation has no From, and Cause is submit.
	Transition Type = "transition"
	// StepChanged: a step of an operation changed its status.
	StepChanged Type = "step"
	// Progress: work said how far it is; at most one a second for each operation.
	Progress Type = "progress"
	// WaitReason: an operation that waits does so for another reason than before.
	WaitReason Type = "waiting"
	// Stalled: work gives no sign of life, or does again.
	Stalled Type = "stalled"
	// LaneChanged: a lane was paused, resumed, closed, opened, or got another capacity.
	LaneChanged Type = "lane"
	// Delivery: a result was delivered, was given to a person, was dropped, or is tried again because somebody asked for it.
	Delivery Type = "delivery"
	// TargetChanged: a target of deliveries went down, or is back.
	TargetChanged Type = "target"
	// Swept: the storage was swept.
	Swept Type = "sweep"
	// Missing: events are missing here.
	Missing Type = "gap"
)

// Types lists the types.
func Types() []Type {
	return []Type{Transition, StepChanged, Progress, WaitReason, Stalled, LaneChanged, Delivery, TargetChanged, Swept, Missing}
}

// Event is one thing that happened. Members that an event has no use for are left out.
type Event struct {
	// Seq is the number of the event. It is given by the log.
	Seq  uint64    `json:"seq"`
	Type Type      `json:"type"`
	At   time.Time `json:"at"`

	// ID and what follows it are of the operation that the event is of.
	ID    statefs.ID `json:"id,omitzero"`
	Group string     `json:"group,omitempty"`
	Job   string     `json:"job,omitempty"`
	// Lane is the lane of the operation, or the one that changed.
	Lane string   `json:"lane,omitempty"`
	Key  string   `json:"key,omitempty"`
	Tags []string `json:"tags,omitempty"`
	Run  int      `json:"run,omitempty"`

	// From, To and Cause are of a transition; Result, Error and FinishedSeq are there when it is the end.
	From        statefs.State  `json:"from,omitempty"`
	To          statefs.State  `json:"to,omitempty"`
	Cause       statefs.Cause  `json:"cause,omitempty"`
	Result      statefs.Result `json:"result,omitempty"`
	Error       *statefs.Fault `json:"error,omitempty"`
	FinishedSeq uint64         `json:"finished_seq,omitempty"`

	// Step is the name of the step that changed, Status what it is now; Number is its place among the Total steps of the operation, from 1.
	// ErrorCode is why its last attempt failed, Retries how often it began again. Run is that of the step then.
	Step      string       `json:"step,omitempty"`
	Status    steps.Status `json:"status,omitempty"`
	Number    int          `json:"number,omitempty"`
	Total     int          `json:"total,omitempty"`
	Optional  bool         `json:"optional,omitempty"`
	Retries   int          `json:"retries,omitempty"`
	ErrorCode string       `json:"error_code,omitempty"`

	Progress *statefs.Progress `json:"progress,omitempty"`
	Waiting  *Waiting          `json:"waiting,omitempty"`
	// Stalled is true when the work gives no sign of life, and false when it does again.
	Stalled *bool       `json:"stalled,omitempty"`
	Change  *LaneChange `json:"change,omitempty"`
	// Delivery says what became of a delivery of the operation, Target how a target is.
	Delivery *Delivered `json:"delivery,omitempty"`
	Target   *Target    `json:"target,omitempty"`
	Sweep    *Sweep     `json:"sweep,omitempty"`
	Gap      *Gap       `json:"gap,omitempty"`
}

// Waiting says why an operation does not run.
type Waiting = statefs.Waiting

// LaneChange says what became of a lane.
type LaneChange struct {
	// What is what happened to the lane, or to all of them when the event's lane is all: one of paused, resumed, closed, opened, capacity, breaker_opened, breaker_closed.
	What     string     `json:"what"`
	Capacity *int       `json:"capacity,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Delivered says what became of a delivery.
type Delivered struct {
	// Target is the place of the target in the job's list, from 1, Kind what it is, and Name where at the target it goes.
	Target int                    `json:"target"`
	Kind   string                 `json:"kind"`
	Status statefs.DeliveryStatus `json:"status"`
	Name   string                 `json:"name,omitempty"`
	// Location and Bytes are of what was delivered, Error is why it waits for a person.
	Location string `json:"location,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Error    string `json:"error,omitempty"`
	// By is who asked for it, when somebody did.
	By string `json:"by,omitempty"`
}

// Target says how a target of deliveries is. Name has nothing that may be a secret.
type Target struct {
	Name    string `json:"name"`
	Down    bool   `json:"down"`
	Pending int    `json:"pending"`
	Error   string `json:"error,omitempty"`
}

// Sweep says what a sweep found.
type Sweep struct {
	Findings int `json:"findings"`
	// Files are the first of them, by name.
	Files []string `json:"files,omitempty"`
}

// Gap says which events are missing.
type Gap struct {
	// From and To are the first and the last number that may be missing; To is From less one when nothing is, which only GapSlow can mean.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Reason is one of GapReasons.
	Reason string `json:"reason"`
}

// The reasons of a gap.
const (
	// GapCrash: the daemon ended without closing the log; the end of it may be missing.
	GapCrash = "crash"
	// GapRetention: they are older than the log is kept.
	GapRetention = "retention"
	// GapOverflow: more happened than could be written.
	GapOverflow = "overflow"
	// GapLost: they could not be written, or cannot be read.
	GapLost = "lost"
	// GapUnknown: the reader goes on from a number that no event has had yet; it comes from another storage.
	GapUnknown = "unknown_number"
	// GapSlow: the reader took nothing for too long and is let go. It is the last event that it gets; all that is missing may still be kept.
	GapSlow = "slow"
)
