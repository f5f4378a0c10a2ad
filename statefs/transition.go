package statefs

import "fmt"

// Cause is why an operation changes its state. The record keeps it with each transition.
type Cause string

// The causes.
const (
	// CauseSubmit is the submit: it leads from no state to the first one.
	CauseSubmit Cause = "submit"
	// CauseDue means that the due time of a scheduled operation or of the next attempt has come.
	CauseDue Cause = "due"
	// CauseStart means that the daemon starts a run.
	CauseStart Cause = "start"
	// CausePause is a pause request, or a marker that a person renamed to paused.
	CausePause Cause = "pause"
	// CauseResume is a resume request for work that is stopped and still exists.
	CauseResume Cause = "resume"
	// CauseRelease is a resume request for an operation without a process: it was paused before it
	// started, or its process ended during the pause.
	CauseRelease Cause = "release"
	// CauseCancel is a cancel request.
	CauseCancel Cause = "cancel"
	// CauseMarkerMissing means that a person removed the marker, which cancels the operation.
	CauseMarkerMissing Cause = "marker_missing"
	// CauseInterrupted means that the daemon stopped and stopped the work with it; this is not an
	// attempt.
	CauseInterrupted Cause = "interrupted"
	// CauseRescued means that a new run replaces a run that died with an earlier daemon, or whose
	// failure is likely to be temporary.
	CauseRescued Cause = "rescued"
	// CauseDone means that the work ended by itself, with or without failed items.
	CauseDone Cause = "done"
	// CauseFailed means that the work ended with an error and is not retried.
	CauseFailed Cause = "failed"
	// CauseRetryLater means that an attempt failed and another one is due later.
	CauseRetryLater Cause = "retry_later"
	// CauseNotYet is a resume request for an operation whose due time has not come.
	CauseNotYet Cause = "not_yet"
	// CauseExpired means that a time limit of the operation is exceeded: its maximum wait in the
	// queue, or its deadline.
	CauseExpired Cause = "expired"
	// CauseNeedsPerson means that an attempt failed in a way that only a person can repair.
	CauseNeedsPerson Cause = "needs_person"
	// CauseDependency means that an operation it depends on did not end as required.
	CauseDependency Cause = "dependency"
	// CauseRetry is a retry request.
	CauseRetry Cause = "retry"
	// CauseNextStep means that the next step needs another lane or other limits than the one
	// before.
	CauseNextStep Cause = "next_step"
	// CauseSkip is a skip request for the current step.
	CauseSkip Cause = "skip"
	// CauseGate means that the work reached a gate.
	CauseGate Cause = "gate"
	// CauseApprove and CauseReject answer a gate.
	CauseApprove Cause = "approve"
	CauseReject  Cause = "reject"
	// CauseMainDone means that the required steps are done while optional steps go on; CauseAllDone
	// ends those.
	CauseMainDone Cause = "main_done"
	CauseAllDone  Cause = "all_done"
	// CauseUnreadable means that the record cannot be read: the operation waits for a person.
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

// Description returns what cause c means, in one sentence for people; "" for text that is no cause.
func (c Cause) Description() string { return causeDescriptions[c] }

var causeDescriptions = map[Cause]string{
	CauseSubmit:        "A client submits it.",
	CauseDue:           "Its time, or the time of its next attempt, has come.",
	CauseStart:         "The daemon starts a run.",
	CausePause:         "A client requests a pause.",
	CauseResume:        "A client requests a resume, and its stopped work is still there.",
	CauseRelease:       "A client requests a resume, and it has no process to go on with.",
	CauseCancel:        "A client requests a cancel.",
	CauseMarkerMissing: "A person removed its marker.",
	CauseInterrupted:   "The daemon stops and takes the work down with it; this costs no attempt.",
	CauseRescued:       "A run died with an earlier daemon, or failed in a way that may go well another time, and is replaced by another one.",
	CauseDone:          "The work ended by itself, with or without failed items.",
	CauseFailed:        "The work could not be done, and is not tried again.",
	CauseRetryLater:    "An attempt failed and another one is due later.",
	CauseNotYet:        "A client requests a resume, and its time has not come yet.",
	CauseExpired:       "It waited in the queue for too long, or its deadline has passed.",
	CauseNeedsPerson:   "An attempt failed in a way that only a person can repair.",
	CauseDependency:    "An operation that it comes after has ended without the required result.",
	CauseRetry:         "A client requests a retry.",
	CauseNextStep:      "The next step takes another lane or other limits than the one before.",
	CauseSkip:          "A client requests to skip the current step.",
	CauseGate:          "The work reached a gate.",
	CauseApprove:       "A person approves it at the gate.",
	CauseReject:        "A person rejects it at the gate.",
	CauseMainDone:      "The main chain is done while optional steps go on.",
	CauseAllDone:       "The last optional step has ended.",
	CauseUnreadable:    "Its record cannot be read, so it is kept for a person.",
}

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

type occasion struct {
	from  State
	cause Cause
}

var transitionOf = func() map[occasion]Transition {
	table := make(map[occasion]Transition, len(transitions))
	for _, t := range transitions {
		table[occasion{t.From, t.Cause}] = t
	}
	return table
}()

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
	row, ok := transitionOf[occasion{from, cause}]
	if !ok {
		return Transition{}, &TransitionError{from, cause}
	}
	return row, nil
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
