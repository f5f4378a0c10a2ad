package statefs

import "slices"

// State is the state of an operation. Live states are the suffixes of markers in jobs/; terminal
// states are recorded in the record only.
type State string

// The live states. Each is the suffix of a marker.
const (
	// Scheduled waits for a time.
	Scheduled State = "scheduled"
	// Queued starts as soon as its lane and limits have capacity.
	Queued State = "queued"
	// Running may have had effects: the marker is renamed before the work starts.
	Running State = "running"
	// Paused was requested by a person. The operation has a stopped process, or has not started.
	Paused State = "paused"
	// WaitingApproval is at a gate of its pipeline until a person approves or rejects.
	WaitingApproval State = "waiting_approval"
	// FailedRetryable waits for its next attempt, due at the time in the record.
	FailedRetryable State = "failed_retryable"
	// FailedManual waits until a person acts.
	FailedManual State = "failed_manual"
	// Trailing has completed its required steps; optional steps are still at work.
	Trailing State = "trailing"
)

// The terminal states. An operation in one of them has no marker.
const (
	// Completed ran to its end, with result success or partial.
	Completed State = "completed"
	// Cancelled was ended by a request, a removed marker or a client.
	Cancelled State = "cancelled"
	// Failed ended with an error and will not be tried again.
	Failed State = "failed"
)

var (
	liveStates = [...]State{
		Scheduled, Queued, Running, Paused, WaitingApproval, FailedRetryable, FailedManual, Trailing,
	}
	terminalStates = []State{Completed, Cancelled, Failed}
)

// LiveStates returns every state that has a marker, in the order of an operation's life.
func LiveStates() []State { return slices.Clone(liveStates[:]) }

// States returns every state, live ones first.
func States() []State { return slices.Concat(liveStates[:], terminalStates) }

// Live reports whether an operation in state s has a marker.
func (s State) Live() bool { return slices.Contains(liveStates[:], s) }

// Terminal reports whether s is an end.
func (s State) Terminal() bool { return slices.Contains(terminalStates, s) }

// Description returns what state s means, in one sentence for people; "" for text that is no state.
func (s State) Description() string { return stateDescriptions[s] }

// stateDescriptions are the sentences of docs/states.md.
var stateDescriptions = map[State]string{
	Scheduled:       "It waits for its time.",
	Queued:          "It starts as soon as its lane, limits and key allow.",
	Running:         "It is at work, or may have had effects: the marker is renamed before the work starts.",
	Paused:          "A person holds it, with a stopped process or before it started.",
	WaitingApproval: "It waits at a gate until a person approves or rejects it.",
	FailedRetryable: "An attempt failed and the next one is due at the time in the record.",
	FailedManual:    "It waits until a person acts.",
	Trailing:        "Its main chain is done, and optional steps are still at work or wait for a person.",
	Completed:       "It went to its end; the result says whether every item did.",
	Cancelled:       "It was ended by a request, a removed marker or a client.",
	Failed:          "It ended with an error and is not tried again.",
}

// Result is the outcome of a finished operation, as in the footer.
type Result string

// The results.
const (
	// Success means that everything was done.
	Success Result = "success"
	// Partial means that the work ran to its end and some items failed.
	Partial Result = "partial"
	// Failure means that the work could not be done.
	Failure Result = "failure"
	// CancelledResult means that the work was ended by a request.
	CancelledResult Result = "cancelled"
)
