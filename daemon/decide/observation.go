package decide

import (
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Observation is one thing that was seen of an operation: what is there, and never what to do about it.
type Observation interface {
	decide(s Snapshot, e Env) Answer
}

// The observations.
type (
	// MarkersSeen has the markers that exist.
	MarkersSeen struct{ States []statefs.State }
	// MarkerGone means that the marker of a managed operation has no name of a marker, confirmed.
	MarkerGone struct{ Found Place }
	// MarkerLost means that a start found no marker of a live record, confirmed.
	MarkerLost struct{ Found Place }
	// Found means that a start takes an operation over whose marker is its state. Adopted work goes on.
	Found struct {
		Recorded statefs.State
		Adopted  bool
	}
	// Requested is a request. It is stale if it was made before the present state was entered, or if the record shows
	// its effect.
	Requested struct {
		Action statefs.Action
		Stale  bool
	}
	// WorkSeen tells how the work stands. Stopped means that all of it stands still for a pause, Optional that optional
	// steps are at work.
	WorkSeen struct{ Stopped, Optional bool }
	// WorkEnded means that the run has ended, and how: it goes on without the daemon; it ended with the daemon; a cancel
	// ended it, or a cause of an earlier daemon; it failed, or stalled and its job cancels what stalls.
	WorkEnded struct {
		Detached, Interrupted, ByCancel bool
		EndedBy                         statefs.Cause
		Failed, StallCancels            bool
	}
	// AttemptFailed means that a run failed: a signal killed it, it was cut off, its time was over, or something else
	// went wrong. It is partial if only items failed, and uncounted if it was cut off while it was paused. Step means
	// that it was a required step.
	AttemptFailed struct {
		Signal, CutOff, TimeOver bool
		Class                    catalog.Class // "" when neither the job nor the handler gives one
		Partial, Uncounted, Step bool
	}
	// RetryPlanned tells whether a failed run can be tried again: after a wait or at once, or not before a time limit
	// is exceeded.
	RetryPlanned struct{ Partial, Exceeds, Waits, Step bool }
	// EndNoted is the cause that the end of a run has in the record.
	EndNoted struct {
		Cause statefs.Cause
		Step  bool
	}
	// StepReached is the next move of the required steps: after the end of a step that was done, or of a queued
	// operation. SamePlaces means that the next step needs the lane and limits of the one before.
	StepReached struct {
		Move             steps.Move
		Done, SamePlaces bool
	}
	// LimitExpired means that the deadline or the queue_timeout has passed.
	LimitExpired struct{}
	// TimeCame means that no time is ahead for which the operation waits.
	TimeCame struct{}
	// ParentSeen is how a parent ended. AnyEnd means that any end will do.
	ParentSeen struct {
		Live   bool
		Status statefs.State
		AnyEnd bool
	}
	// Undisturbed means that nothing else has happened to the operation.
	Undisturbed struct{}
	// Admitted means that the queue lets the operation start.
	Admitted struct{}
	// OptionalSeen tells about optional steps: some are at work, or are started later.
	OptionalSeen struct{ Running, Unfinished bool }
	// StallChanged means that the work stalls or moves again. Ends means that its job ends what stalls.
	StallChanged struct{ Stalled, Ends bool }
	// DaemonStops means that the daemon stops.
	DaemonStops struct{}
)

// Place is where a marker was found that has none of its names.
type Place string

// The places.
const (
	Nowhere   Place = "nowhere"
	Misnamed  Place = "misnamed"  // under a name that is no marker
	Misplaced Place = "misplaced" // under the name of another operation, which keeps the file
)
