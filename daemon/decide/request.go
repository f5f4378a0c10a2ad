package decide

import "github.com/jobdir/jobdir/statefs"

// Effect is what a request does, or the rename or removal of a marker by a person.
type Effect string

// The effects.
const (
	None       Effect = "none"       // the log says that there is nothing to do
	Drop       Effect = "drop"       // nothing, without a line
	Merge      Effect = "merge"      // it takes the place of the same request under way
	Transition Effect = "transition" // by Cause
	StopWork   Effect = "stop work"  // stop the work, and make the transition when it has stopped
	Continue   Effect = "continue"   // take the pause back, which the work has not reached
	EndWork    Effect = "end work"   // end the work, and make the transition when it has ended
	KillWork   Effect = "kill work"  // the same without a grace period
	Prioritize Effect = "prioritize"
	Retry      Effect = "retry"      // a transition, unless it is refused
	Step       Effect = "step"       // package acts decides by the steps and the arguments
	Undo       Effect = "undo"       // rename the file back to the marker
	Cancel     Effect = "cancel"     // cancel an operation whose marker was removed
	Restore    Effect = "restore"    // make the marker again
	Start      Effect = "start"      // a transition; the work is started through the queue
	WaitAgain  Effect = "wait again" // move the marker on by Cause, to where the operation waits for its time
)

// Answer is what the daemon does about a request or a rename.
type Answer struct {
	Effect Effect
	Cause  statefs.Cause // of the transition
	Line   string        // for the log of the operation, "" for none
}

// CancelLine returns the line in the log for the cancel of an operation in a state.
func CancelLine(state statefs.State) string {
	if state == statefs.Paused {
		return "  Cancel requested while paused, stopping..."
	}
	return "  Cancel requested, stopping..."
}

var lines = map[statefs.Cause]string{
	statefs.CausePause:      "  Pause requested, pausing...",
	statefs.CauseResume:     "  Resume requested, resuming...",
	statefs.CauseRelease:    "  Resume requested, resuming...",
	statefs.CauseNotYet:     "  Resume requested, waiting for its time again...",
	statefs.CauseRetryLater: "  Resume requested, waiting for its time again...",
	statefs.CauseRetry:      "  Retry requested, starting again...",
}

func answer(effect Effect, cause statefs.Cause) Answer { return Answer{effect, cause, lines[cause]} }

// RequestOf returns what a request does to an operation. A request under way that ends the operation beats all others,
// and an operation that has ended has a sealed log. stale means that the request was made before the present state was
// entered, or that the record shows its effect.
func RequestOf(o Operation, action statefs.Action, stale bool) Answer {
	switch ends := o.Ending.Spec().Ends; {
	case action == o.Ending && action != statefs.ForceCancel:
		return Answer{Effect: Merge} // the two share one file in taken/
	case o.Ended, ends && action != statefs.ForceCancel:
		return Answer{Effect: Drop}
	case action == statefs.Pause && o.Pausing:
		return Answer{Effect: Merge}
	case action == statefs.Resume && o.Pausing:
		return answer(Continue, statefs.CauseResume)
	case o.HasSteps && action.Spec().OnStep && !stale:
		return Answer{Effect: Step}
	case stale && action.Spec().OnStep, action.Spec().NeedsSteps, !action.AppliesIn(o.State):
		return Answer{Effect: None}
	}
	return effectOf(o, action)
}

// effectOf returns what a request does that applies in the state of an operation. An action without a case does
// nothing.
func effectOf(o Operation, action statefs.Action) Answer {
	switch action { //nolint:exhaustive // the others act on steps
	case statefs.Pause:
		return pause(o)
	case statefs.Resume:
		if o.Working {
			return answer(Transition, statefs.CauseResume)
		}
		return answer(Transition, o.Resume)
	case statefs.Cancel:
		return Answer{EndWork, statefs.CauseCancel, CancelLine(o.State)}
	case statefs.ForceCancel:
		return Answer{KillWork, statefs.CauseCancel, "  Force cancel requested, killing..."}
	case statefs.Prioritize:
		return Answer{Effect: Prioritize}
	case statefs.Retry:
		return answer(Retry, statefs.CauseRetry)
	}
	return Answer{Effect: None}
}

func pause(o Operation) Answer {
	if o.Working {
		return answer(StopWork, statefs.CausePause)
	}
	return answer(Transition, statefs.CausePause)
}

// MoveOf returns what the rename of its marker to a state means for an operation. Work that exists is not queued, and
// an operation that waits for its time does not run before.
func MoveOf(o Operation, to statefs.State) Answer {
	cause, ok := statefs.ManualMove(o.State, to)
	switch {
	case !ok, cause == statefs.CauseRelease && o.Working:
		return Answer{Effect: Undo}
	case cause == statefs.CausePause:
		return pause(o)
	case cause == statefs.CauseRetry:
		return answer(Retry, cause)
	case cause != statefs.CauseResume || o.Working:
		return answer(Transition, cause)
	case o.Resume == statefs.CauseRelease:
		return answer(Start, cause)
	}
	return answer(WaitAgain, o.Resume)
}
