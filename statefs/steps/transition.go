package steps

import (
	"fmt"
	"slices"
)

// Cause is why a step changes its status.
type Cause string

// The causes, each with what happens to the step; docs/steps.md is made of these sentences.
const (
	// CauseStart: a run of it begins.
	CauseStart Cause = "start"
	// CauseDone: its work ended well, and left every output that the job names.
	CauseDone Cause = "done"
	// CauseRetryLater: an attempt failed and another one is due, at once or later.
	CauseRetryLater Cause = "retry_later"
	// CauseNeedsPerson: an attempt failed in a way that only a person can repair, or was the last one.
	CauseNeedsPerson Cause = "needs_person"
	// CauseCutOff: its work was ended without a verdict: the operation was cancelled, or the daemon or the machine
	// went away.
	CauseCutOff Cause = "cut_off"
	// CauseWhen: its condition does not hold.
	CauseWhen Cause = "when"
	// CauseSkip: a client requests to skip it.
	CauseSkip Cause = "skip"
	// CauseRetry: a client requests a retry.
	CauseRetry Cause = "retry"
	// CauseBack: a client requests a retry from it, or from a step that it needs.
	CauseBack Cause = "back"
	// CauseApprove: a person approves it, and it has no work of its own.
	CauseApprove Cause = "approve"
	// CauseReject: a person rejects it.
	CauseReject Cause = "reject"
)

// Transition is one row of the table.
type Transition struct {
	From  Status
	Cause Cause
	To    Status
}

//go:generate go test -count=1 -run TestStepsPage . -update

// transitions is the whole state machine of a step; the drawing in docs/steps.md is generated from
// it. Any other pair is an error.
var transitions = []Transition{
	{Pending, CauseStart, Running},
	{Pending, CauseWhen, Skipped},
	{Pending, CauseSkip, Skipped},
	{Pending, CauseApprove, Succeeded},
	{Pending, CauseReject, FailedManual},
	{Pending, CauseNeedsPerson, FailedManual},

	{Running, CauseDone, Succeeded},
	{Running, CauseRetryLater, FailedRetryable},
	{Running, CauseNeedsPerson, FailedManual},
	{Running, CauseCutOff, Pending},

	{FailedRetryable, CauseStart, Running},
	{FailedRetryable, CauseNeedsPerson, FailedManual},
	{FailedRetryable, CauseSkip, Skipped},
	{FailedRetryable, CauseRetry, Pending},
	{FailedRetryable, CauseCutOff, Pending},

	{FailedManual, CauseSkip, Skipped},
	{FailedManual, CauseRetry, Pending},

	{Succeeded, CauseBack, Pending},
	{Skipped, CauseBack, Pending},
	{FailedRetryable, CauseBack, Pending},
	{FailedManual, CauseBack, Pending},
}

// TransitionError reports that a cause does not apply to a step in its status.
type TransitionError struct {
	Step  string
	From  Status
	Cause Cause
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("step %s, which is %s, does not change by %q", e.Step, e.From, e.Cause)
}

// Apply changes the status of a step by cause. The error is a *TransitionError.
func (s *Step) Apply(cause Cause) error {
	i := slices.IndexFunc(transitions, func(t Transition) bool { return t.From == s.Status && t.Cause == cause })
	if i < 0 {
		return &TransitionError{Step: s.Name, From: s.Status, Cause: cause}
	}
	s.Status = transitions[i].To
	return nil
}
