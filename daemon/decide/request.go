package decide

import "github.com/jobdir/jobdir/statefs"

// A request under way that ends the operation beats all others, and an operation that has ended has a sealed log.
func (o Requested) decide(s Snapshot, _ Env) Answer {
	action := o.Action
	switch ends := s.Ending.Spec().Ends; {
	case action == s.Ending && action != statefs.ForceCancel:
		return do(Merge) // the two share one file in taken/
	case s.Ended, ends && action != statefs.ForceCancel:
		return do(Drop)
	case action == statefs.Pause && s.Pausing:
		return do(Merge)
	case action == statefs.Resume && s.Pausing:
		return answer(Continue, statefs.CauseResume)
	case s.HasSteps && action.Spec().OnStep && !o.Stale:
		return do(Step)
	case o.Stale && action.Spec().OnStep, action.Spec().NeedsSteps, !action.AppliesIn(s.State):
		return do(Ignore)
	}
	return effectOf(s, action)
}

// effectOf returns what a request does that applies in the state of an operation. An action without a case does
// nothing.
func effectOf(s Snapshot, action statefs.Action) Answer {
	switch action { //nolint:exhaustive // the others act on steps
	case statefs.Pause:
		if s.Working {
			return answer(StopWork, statefs.CausePause)
		}
		return answer(Transition, statefs.CausePause)
	case statefs.Resume:
		if s.Working {
			return answer(Transition, statefs.CauseResume)
		}
		return answer(Transition, s.Resume)
	case statefs.Cancel:
		return Answer{Effect: EndWork, Cause: statefs.CauseCancel, Line: cancelLine(s.State)}
	case statefs.ForceCancel:
		return Answer{Effect: KillWork, Cause: statefs.CauseCancel, Line: "  Force cancel requested, killing..."}
	case statefs.Prioritize:
		return do(Prioritize)
	case statefs.Retry:
		return answer(Retry, statefs.CauseRetry)
	}
	return do(Ignore)
}
