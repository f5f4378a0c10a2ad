package statefs

import "slices"

// State says where an operation stands. The live ones are the suffixes of markers in jobs/; the terminal ones stand in the
// record only.
type State string

// The live states. Each is the suffix of a marker.
const (
	// Scheduled waits for a time.
	Scheduled State = "scheduled"
	// Queued can start as soon as there is room for it.
	Queued State = "queued"
	// Running may have had effects: the marker is renamed before the work starts.
	Running State = "running"
	// Paused is held by a person. It either has a stopped process or has not started.
	Paused State = "paused"
	// WaitingApproval stands at a gate of its pipeline until somebody approves or rejects.
	WaitingApproval State = "waiting_approval"
	// FailedRetryable waits for its next attempt, due at the time in the record.
	FailedRetryable State = "failed_retryable"
	// FailedManual waits until a person acts.
	FailedManual State = "failed_manual"
	// Trailing has its main chain done and optional steps still at work.
	Trailing State = "trailing"
)

// The terminal states. An operation in one of them has no marker.
const (
	// Completed went to its end, with result success or partial.
	Completed State = "completed"
	// Cancelled was ended by a request, a removed marker or a client.
	Cancelled State = "cancelled"
	// Failed ended with an error and will not be tried again.
	Failed State = "failed"
)

var (
	liveStates     = []State{Scheduled, Queued, Running, Paused, WaitingApproval, FailedRetryable, FailedManual, Trailing}
	terminalStates = []State{Completed, Cancelled, Failed}
)

// LiveStates returns every state that has a marker, in the order of an operation's life.
func LiveStates() []State { return slices.Clone(liveStates) }

// States returns every state, live ones first.
func States() []State { return slices.Concat(liveStates, terminalStates) }

// Live reports whether an operation in state s has a marker.
func (s State) Live() bool { return slices.Contains(liveStates, s) }

// Terminal reports whether s is an end.
func (s State) Terminal() bool { return slices.Contains(terminalStates, s) }

// Result is the outcome of an operation that ended, as the footer says it.
type Result string

// The results.
const (
	// Success means that everything was done.
	Success Result = "success"
	// Partial means that the work went to its end and some items failed.
	Partial Result = "partial"
	// Failure means that the work could not be done.
	Failure Result = "failure"
	// CancelledResult means that the work was ended by a request.
	CancelledResult Result = "cancelled"
)

// Ask is the kind of a request: what somebody wants to happen to an operation. The request file of an ask is
// ID.{ask}_requested.
type Ask string

// The asks.
const (
	Pause   Ask = "pause"
	Resume  Ask = "resume"
	Cancel  Ask = "cancel"
	Retry   Ask = "retry"
	Skip    Ask = "skip"
	Set     Ask = "set"
	Approve Ask = "approve"
	Reject  Ask = "reject"
	// Prioritize changes the place in the queue: {"priority": N}, or before all others of the lane without arguments.
	Prioritize Ask = "prioritize"
)

var asks = []Ask{Pause, Resume, Cancel, Retry, Skip, Set, Approve, Reject, Prioritize}

// Asks returns every kind of request.
func Asks() []Ask { return slices.Clone(asks) }

// opposite is the ask that a new one replaces, so that the last one wins.
var opposite = map[Ask]Ask{Pause: Resume, Resume: Pause, Approve: Reject, Reject: Approve}
