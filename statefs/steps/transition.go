package steps

import "fmt"

// Cause is why a step changes its status.
type Cause string

// The causes.
const (
	// CauseStart means that a run of the step begins.
	CauseStart Cause = "start"
	// CauseDone means that the work succeeded, with all outputs that the job names.
	CauseDone Cause = "done"
	// CauseRetryLater means that an attempt failed and another one is due, at once or later.
	CauseRetryLater Cause = "retry_later"
	// CauseNeedsPerson means that an attempt failed in a way that only a person can repair, or that
	// it was the last one.
	CauseNeedsPerson Cause = "needs_person"
	// CauseCutOff means that the work was interrupted without a result: the operation was
	// cancelled, or the daemon or the machine ended.
	CauseCutOff Cause = "cut_off"
	// CauseWhen means that its condition does not hold.
	CauseWhen Cause = "when"
	// CauseSkip is a skip request.
	CauseSkip Cause = "skip"
	// CauseRetry is a retry request for a step that failed.
	CauseRetry Cause = "retry"
	// CauseBack means that a person went back to this step or to a step that it needs.
	CauseBack Cause = "back"
	// CauseApprove and CauseReject answer a gate; an approved gate without work is done.
	CauseApprove Cause = "approve"
	CauseReject  Cause = "reject"
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

var next = func() map[Transition]Status {
	table := make(map[Transition]Status)
	for _, t := range transitions {
		table[Transition{From: t.From, Cause: t.Cause}] = t.To
	}
	return table
}()

// TransitionError reports that a cause does not apply to a step in its status.
type TransitionError struct {
	Step  string
	From  Status
	Cause Cause
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("step %s, which is %s, does not change by %q", e.Step, e.From, e.Cause)
}

// Next returns the status that follows from by cause, false if the table has no such pair.
func Next(from Status, cause Cause) (Status, bool) {
	to, ok := next[Transition{From: from, Cause: cause}]
	return to, ok
}

// Apply changes the status of a step by cause. The error is a *TransitionError.
func (s *Step) Apply(cause Cause) error {
	to, ok := Next(s.Status, cause)
	if !ok {
		return &TransitionError{Step: s.Name, From: s.Status, Cause: cause}
	}
	s.Status = to
	return nil
}
