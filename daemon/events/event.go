package events

import (
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Type is the type of an event.
type Type = string

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

// Of returns an event of an operation.
func Of(rec *statefs.Record, kind Type) api.Event {
	lane, _ := rec.LaneAndLimits()
	return api.Event{
		Type: kind, ID: rec.ID, Group: rec.Group, Job: rec.Job, Lane: lane, Key: rec.Key, Tags: rec.Tags, Run: rec.Run,
	}
}
