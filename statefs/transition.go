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
	// CauseRescued means that a new run replaces one that died with an earlier daemon, or failed in
	// a way that is likely to succeed next time.
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

// Transition is one row of the table.
type Transition struct {
	From  State
	Cause Cause
	To    State
}

//go:generate go test -count=1 -run TestStatesPage . -update

// transitions is the whole state machine; docs/states.md is generated from it. Any other pair is an
// error.
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
	to, ok := nextState[from][cause]
	if !ok {
		return "", &TransitionError{from, cause}
	}
	return to, nil
}

// AppliesIn reports whether the action can change an operation in a state, judging by the state
// alone.
func (a Action) AppliesIn(state State) bool {
	if a == Prioritize {
		return state.Live() && state != Running && state != Trailing
	}
	for _, cause := range actionCauses[a] {
		if _, err := Next(state, cause); err == nil {
			return true
		}
	}
	return false
}

// actionCauses are the causes that each action can have.
var actionCauses = map[Action][]Cause{
	Pause: {CausePause}, Resume: {CauseResume, CauseRelease, CauseNotYet}, Cancel: {CauseCancel},
	ForceCancel: {CauseCancel}, Retry: {CauseRetry},
	Skip: {CauseSkip}, Set: {CauseRetry, CauseApprove}, Approve: {CauseApprove}, Reject: {CauseReject},
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
