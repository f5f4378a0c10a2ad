package statefs

import "fmt"

// Cause is why an operation changes its state. It is kept in the record with each transition.
type Cause string

// The causes.
const (
	// CauseSubmit is the beginning: it leads from no state to the first one.
	CauseSubmit Cause = "submit"
	// CauseDue means that the time of a scheduled operation or of a next attempt has come.
	CauseDue Cause = "due"
	// CauseStart means that the daemon starts a run.
	CauseStart Cause = "start"
	// CausePause is a pause request, or a marker that was moved to paused by hand.
	CausePause Cause = "pause"
	// CauseResume is a resume request for work that is stopped and still there.
	CauseResume Cause = "resume"
	// CauseRelease is a resume request for an operation that has no process: it was held before it started, or lost its
	// process while it was paused.
	CauseRelease Cause = "release"
	// CauseCancel is a cancel request.
	CauseCancel Cause = "cancel"
	// CauseMarkerMissing means that the marker was removed by hand, which cancels.
	CauseMarkerMissing Cause = "marker_missing"
	// CauseInterrupted means that the daemon stops and takes the work down with it; it costs no attempt.
	CauseInterrupted Cause = "interrupted"
	// CauseRescued means that a run is replaced by another one: it died with an earlier daemon, or failed in a way that may go
	// well another time.
	CauseRescued Cause = "rescued"
	// CauseDone means that the work ended by itself, with or without failed items.
	CauseDone Cause = "done"
	// CauseFailed means that the work ended with an error and is not tried again.
	CauseFailed Cause = "failed"
	// CauseRetryLater means that an attempt failed and another one is due later.
	CauseRetryLater Cause = "retry_later"
	// CauseNotYet is a resume request for an operation whose time has not come.
	CauseNotYet Cause = "not_yet"
	// CauseExpired means that a time limit of the operation is over: it waited in the queue for too long, or its deadline has passed.
	CauseExpired Cause = "expired"
	// CauseNeedsPerson means that an attempt failed in a way that only a person can mend.
	CauseNeedsPerson Cause = "needs_person"
	// CauseDependency means that an operation which it comes after has ended otherwise than it must.
	CauseDependency Cause = "dependency"
	// CauseRetry is a retry request.
	CauseRetry Cause = "retry"
	// CauseNextStep means that the next step takes another lane or other limits than the one before.
	CauseNextStep Cause = "next_step"
	// CauseSkip is a skip request for the step at which the operation stands.
	CauseSkip Cause = "skip"
	// CauseGate means that the work stands at a gate.
	CauseGate Cause = "gate"
	// CauseApprove and CauseReject answer a gate.
	CauseApprove Cause = "approve"
	CauseReject  Cause = "reject"
	// CauseMainDone means that the main chain is done while optional steps go on; CauseAllDone ends those.
	CauseMainDone Cause = "main_done"
	CauseAllDone  Cause = "all_done"
	// CauseUnreadable means that the record cannot be read: the operation is kept for a person.
	CauseUnreadable Cause = "record_unreadable"
)

// Transition is one row of the table.
type Transition struct {
	From  State
	Cause Cause
	To    State
}

//go:generate go test -count=1 -run TestStatesPage . -update

// transitions is the whole state machine; docs/states.md is generated from it. Any pair that is not here is an error.
var transitions = []Transition{
	{Scheduled, CauseDue, Queued},
	{Scheduled, CausePause, Paused},
	{Scheduled, CauseExpired, Failed},
	{Scheduled, CauseCancel, Cancelled},
	{Scheduled, CauseMarkerMissing, Cancelled},
	{Scheduled, CauseUnreadable, FailedManual},

	{Queued, CauseStart, Running},
	{Queued, CausePause, Paused},
	{Queued, CauseCancel, Cancelled},
	{Queued, CauseMarkerMissing, Cancelled},
	{Queued, CauseDone, Completed},
	{Queued, CauseMainDone, Trailing},
	{Queued, CauseGate, WaitingApproval},
	{Queued, CauseNeedsPerson, FailedManual},
	{Queued, CauseFailed, Failed},
	{Queued, CauseExpired, Failed},
	{Queued, CauseDependency, FailedManual},
	{Queued, CauseUnreadable, FailedManual},

	{Running, CausePause, Paused},
	{Running, CauseCancel, Cancelled},
	{Running, CauseMarkerMissing, Cancelled},
	{Running, CauseDone, Completed},
	{Running, CauseFailed, Failed},
	{Running, CauseExpired, Failed},
	{Running, CauseRetryLater, FailedRetryable},
	{Running, CauseNeedsPerson, FailedManual},
	{Running, CauseGate, WaitingApproval},
	{Running, CauseMainDone, Trailing},
	{Running, CauseNextStep, Queued},
	{Running, CauseInterrupted, Queued},
	{Running, CauseRescued, Queued},
	{Running, CauseUnreadable, FailedManual},

	{Paused, CauseResume, Running},
	{Paused, CauseRelease, Queued},
	{Paused, CauseNotYet, Scheduled},
	{Paused, CauseRetryLater, FailedRetryable},
	{Paused, CauseCancel, Cancelled},
	{Paused, CauseMarkerMissing, Cancelled},
	{Paused, CauseDone, Completed},
	{Paused, CauseMainDone, Trailing},
	{Paused, CauseFailed, Failed},
	{Paused, CauseExpired, Failed},
	{Paused, CauseNeedsPerson, FailedManual},
	{Paused, CauseUnreadable, FailedManual},

	{WaitingApproval, CauseApprove, Queued},
	{WaitingApproval, CauseSkip, Queued},
	{WaitingApproval, CauseReject, Failed},
	{WaitingApproval, CauseExpired, Failed},
	{WaitingApproval, CauseCancel, Cancelled},
	{WaitingApproval, CauseMarkerMissing, Cancelled},
	{WaitingApproval, CauseUnreadable, FailedManual},

	{FailedRetryable, CauseDue, Queued},
	{FailedRetryable, CauseRetry, Queued},
	{FailedRetryable, CauseSkip, Queued},
	{FailedRetryable, CausePause, Paused},
	{FailedRetryable, CauseExpired, Failed},
	{FailedRetryable, CauseCancel, Cancelled},
	{FailedRetryable, CauseMarkerMissing, Cancelled},
	{FailedRetryable, CauseUnreadable, FailedManual},

	{FailedManual, CauseRetry, Queued},
	{FailedManual, CauseSkip, Queued},
	{FailedManual, CauseExpired, Failed},
	{FailedManual, CauseCancel, Cancelled},
	{FailedManual, CauseMarkerMissing, Cancelled},

	{Trailing, CauseAllDone, Completed},
	{Trailing, CauseCancel, Completed},
	{Trailing, CauseMarkerMissing, Completed},
	{Trailing, CauseUnreadable, FailedManual},
}

var nextState = func() map[State]map[Cause]State {
	table := make(map[State]map[Cause]State)
	for _, t := range transitions {
		if table[t.From] == nil {
			table[t.From] = make(map[Cause]State)
		}
		table[t.From][t.Cause] = t.To
	}
	return table
}()

// TransitionError says that a cause means nothing in a state.
type TransitionError struct {
	From  State
	Cause Cause
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("an operation that is %s does not change by %q", e.From, e.Cause)
}

// Next returns the state that follows from by cause. The error is a *TransitionError when the table has no such pair.
func Next(from State, cause Cause) (State, error) {
	to, ok := nextState[from][cause]
	if !ok {
		return "", &TransitionError{from, cause}
	}
	return to, nil
}

// Means reports whether a request changes anything in a state, as far as the state alone tells.
func (a Ask) Means(state State) bool {
	if a == Prioritize {
		return state.Live() && state != Running && state != Trailing
	}
	for _, cause := range meanings[a] {
		if _, err := Next(state, cause); err == nil {
			return true
		}
	}
	return false
}

// meanings are the causes that a request can be.
var meanings = map[Ask][]Cause{
	Pause: {CausePause}, Resume: {CauseResume, CauseRelease, CauseNotYet}, Cancel: {CauseCancel}, Retry: {CauseRetry},
	Skip: {CauseSkip}, Set: {CauseRetry, CauseApprove}, Approve: {CauseApprove}, Reject: {CauseReject},
}

// HandMove returns the cause that a marker renamed by hand from one state to another stands for, and false when the move means
// nothing and has to be put back.
func HandMove(from, to State) (Cause, bool) {
	cause, ok := handMoves[[2]State{from, to}]
	return cause, ok
}

// handMoves are the renames that act as the request; which of resume and release a move to running means is decided by whether
// the work is still there. Work that is there does not go into the queue: that move is put back then.
var handMoves = map[[2]State]Cause{
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
