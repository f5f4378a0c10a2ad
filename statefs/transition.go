package statefs

import (
	"fmt"
	"slices"
)

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

// Cause is why an operation changes its state. The record keeps it with each transition.
type Cause string

// The causes, each with what happens to the operation; docs/states.md is made of these sentences.
const (
	// CauseSubmit: a client submits it.
	CauseSubmit Cause = "submit"
	// CauseDue: its time, or the time of its next attempt, has come.
	CauseDue Cause = "due"
	// CauseStart: the daemon starts a run.
	CauseStart Cause = "start"
	// CausePause: a client requests a pause.
	CausePause Cause = "pause"
	// CauseResume: a client requests a resume, and its stopped work is still there.
	CauseResume Cause = "resume"
	// CauseRelease: a client requests a resume, and it has no process to go on with.
	CauseRelease Cause = "release"
	// CauseCancel: a client requests a cancel.
	CauseCancel Cause = "cancel"
	// CauseMarkerMissing: a person removed its marker.
	CauseMarkerMissing Cause = "marker_missing"
	// CauseInterrupted: the daemon stops and takes the work down with it; this costs no attempt.
	CauseInterrupted Cause = "interrupted"
	// CauseRescued: a run died with an earlier daemon, or failed in a way that may go well another time, and is
	// replaced by another one.
	CauseRescued Cause = "rescued"
	// CauseDone: the work ended by itself, with or without failed items.
	CauseDone Cause = "done"
	// CauseFailed: the work could not be done, and is not tried again.
	CauseFailed Cause = "failed"
	// CauseRetryLater: an attempt failed and another one is due later.
	CauseRetryLater Cause = "retry_later"
	// CauseNotYet: a client requests a resume, and its time has not come yet.
	CauseNotYet Cause = "not_yet"
	// CauseExpired: it waited in the queue for too long, or its deadline has passed.
	CauseExpired Cause = "expired"
	// CauseNeedsPerson: an attempt failed in a way that only a person can repair.
	CauseNeedsPerson Cause = "needs_person"
	// CauseDependency: an operation that it comes after has ended without the required result.
	CauseDependency Cause = "dependency"
	// CauseRetry: a client requests a retry.
	CauseRetry Cause = "retry"
	// CauseNextStep: the next step takes another lane or other limits than the one before.
	CauseNextStep Cause = "next_step"
	// CauseSkip: a client requests to skip the current step.
	CauseSkip Cause = "skip"
	// CauseGate: the work reached a gate.
	CauseGate Cause = "gate"
	// CauseApprove: a person approves it at the gate.
	CauseApprove Cause = "approve"
	// CauseReject: a person rejects it at the gate.
	CauseReject Cause = "reject"
	// CauseMainDone: the main chain is done while optional steps go on.
	CauseMainDone Cause = "main_done"
	// CauseAllDone: the last optional step has ended.
	CauseAllDone Cause = "all_done"
	// CauseUnreadable: its record cannot be read, so it is kept for a person.
	CauseUnreadable Cause = "record_unreadable"
)

// Order is the order in which the files of a transition are written. A crash between two writes leaves
// what the next start completes or undoes.
type Order string

// The orders.
const (
	// MarkerFirst renames the marker and then writes the record. The rename alone is the transition: the
	// marker and the request that led to it tell everything that a crash could lose of the record.
	MarkerFirst Order = "marker, record"
	// RecordFirst writes the record, which names the next state, and then renames the marker. The record
	// has what the marker cannot tell: an error, a run number, the answer of a person.
	RecordFirst Order = "record, marker"
	// RecordLast writes the terminal record and then removes the marker.
	RecordLast Order = "record, no marker"
)

// Transition is one row of the table.
type Transition struct {
	From  State
	Cause Cause
	To    State
	Order Order
}

//go:generate go test -count=1 -run TestStatesPage|TestRequestsAreDocumented . -update

// transitions is the whole state machine; docs/states.md is generated from it. Any other pair is an
// error.
var transitions = []Transition{
	{Scheduled, CauseDue, Queued, MarkerFirst},
	{Scheduled, CausePause, Paused, MarkerFirst},
	{Scheduled, CauseExpired, Failed, RecordLast},
	{Scheduled, CauseCancel, Cancelled, RecordLast},
	{Scheduled, CauseMarkerMissing, Cancelled, RecordLast},
	{Scheduled, CauseUnreadable, FailedManual, MarkerFirst},

	{Queued, CauseStart, Running, RecordFirst},
	{Queued, CausePause, Paused, MarkerFirst},
	{Queued, CauseCancel, Cancelled, RecordLast},
	{Queued, CauseMarkerMissing, Cancelled, RecordLast},
	{Queued, CauseDone, Completed, RecordLast},
	{Queued, CauseMainDone, Trailing, RecordFirst},
	{Queued, CauseGate, WaitingApproval, RecordFirst},
	{Queued, CauseNeedsPerson, FailedManual, RecordFirst},
	{Queued, CauseFailed, Failed, RecordLast},
	{Queued, CauseExpired, Failed, RecordLast},
	{Queued, CauseDependency, FailedManual, RecordFirst},
	{Queued, CauseUnreadable, FailedManual, MarkerFirst},

	{Running, CausePause, Paused, MarkerFirst},
	{Running, CauseCancel, Cancelled, RecordLast},
	{Running, CauseMarkerMissing, Cancelled, RecordLast},
	{Running, CauseDone, Completed, RecordLast},
	{Running, CauseFailed, Failed, RecordLast},
	{Running, CauseExpired, Failed, RecordLast},
	{Running, CauseRetryLater, FailedRetryable, RecordFirst},
	{Running, CauseNeedsPerson, FailedManual, RecordFirst},
	{Running, CauseGate, WaitingApproval, RecordFirst},
	{Running, CauseMainDone, Trailing, RecordFirst},
	{Running, CauseNextStep, Queued, RecordFirst},
	{Running, CauseInterrupted, Queued, MarkerFirst},
	{Running, CauseRescued, Queued, RecordFirst},
	{Running, CauseUnreadable, FailedManual, MarkerFirst},

	{Paused, CauseResume, Running, MarkerFirst},
	{Paused, CauseRelease, Queued, MarkerFirst},
	{Paused, CauseNotYet, Scheduled, MarkerFirst},
	{Paused, CauseRetryLater, FailedRetryable, MarkerFirst},
	{Paused, CauseCancel, Cancelled, RecordLast},
	{Paused, CauseMarkerMissing, Cancelled, RecordLast},
	{Paused, CauseDone, Completed, RecordLast},
	{Paused, CauseMainDone, Trailing, RecordFirst},
	{Paused, CauseFailed, Failed, RecordLast},
	{Paused, CauseExpired, Failed, RecordLast},
	{Paused, CauseNeedsPerson, FailedManual, RecordFirst},
	{Paused, CauseUnreadable, FailedManual, MarkerFirst},

	{WaitingApproval, CauseApprove, Queued, RecordFirst},
	{WaitingApproval, CauseSkip, Queued, RecordFirst},
	{WaitingApproval, CauseReject, Failed, RecordLast},
	{WaitingApproval, CauseExpired, Failed, RecordLast},
	{WaitingApproval, CauseCancel, Cancelled, RecordLast},
	{WaitingApproval, CauseMarkerMissing, Cancelled, RecordLast},
	{WaitingApproval, CauseUnreadable, FailedManual, MarkerFirst},

	{FailedRetryable, CauseDue, Queued, MarkerFirst},
	{FailedRetryable, CauseRetry, Queued, MarkerFirst},
	{FailedRetryable, CauseSkip, Queued, RecordFirst},
	{FailedRetryable, CausePause, Paused, MarkerFirst},
	{FailedRetryable, CauseExpired, Failed, RecordLast},
	{FailedRetryable, CauseCancel, Cancelled, RecordLast},
	{FailedRetryable, CauseMarkerMissing, Cancelled, RecordLast},
	{FailedRetryable, CauseUnreadable, FailedManual, MarkerFirst},

	{FailedManual, CauseRetry, Queued, MarkerFirst},
	{FailedManual, CauseSkip, Queued, RecordFirst},
	{FailedManual, CauseExpired, Failed, RecordLast},
	{FailedManual, CauseCancel, Cancelled, RecordLast},
	{FailedManual, CauseMarkerMissing, Cancelled, RecordLast},

	{Trailing, CauseAllDone, Completed, RecordLast},
	{Trailing, CauseCancel, Completed, RecordLast},
	{Trailing, CauseMarkerMissing, Completed, RecordLast},
	{Trailing, CauseUnreadable, FailedManual, MarkerFirst},
}

// TransitionError reports that a cause does not apply in a state.
type TransitionError struct {
	From  State
	Cause Cause
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("an operation that is %s does not change by %q", e.From, e.Cause)
}

// Next returns the state that follows from by cause. The error is a *TransitionError if the table
// has no such pair.
func Next(from State, cause Cause) (State, error) {
	row, err := TransitionFrom(from, cause)
	return row.To, err
}

// TransitionFrom returns the row of the table for a state and a cause. The error is a *TransitionError if
// the table has no such row.
func TransitionFrom(from State, cause Cause) (Transition, error) {
	i := slices.IndexFunc(transitions, func(t Transition) bool { return t.From == from && t.Cause == cause })
	if i < 0 {
		return Transition{}, &TransitionError{from, cause}
	}
	return transitions[i], nil
}

// ManualMove returns the cause of a marker that a person renamed between two states, and false if
// the move has no meaning and must be undone.
func ManualMove(from, to State) (Cause, bool) {
	cause, ok := manualMoves[[2]State{from, to}]
	return cause, ok
}

// manualMoves are the renames that act as requests. A move to running is a resume if the work still
// exists, else a release. Work that still exists is not queued: that move is undone.
var manualMoves = map[[2]State]Cause{
	{Running, Paused}:         CausePause,
	{Paused, Running}:         CauseResume,
	{Paused, Queued}:          CauseRelease,
	{Queued, Paused}:          CausePause,
	{Scheduled, Paused}:       CausePause,
	{FailedRetryable, Paused}: CausePause,
	{Scheduled, Queued}:       CauseDue,
	{FailedRetryable, Queued}: CauseRetry,
	{FailedManual, Queued}:    CauseRetry,
}
