package decide

import (
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// While a request waits for the end of work, nothing but requests counts.
func (o WorkSeen) decide(s Snapshot, _ Env) Answer {
	switch {
	case s.Pausing && o.Stopped:
		return completed(s.State, statefs.CausePause, Answer{Effect: Complete, Awaited: StopWork})
	case s.Ending != "" && (s.Working || o.Optional):
		return do(TakeRequests)
	case s.Ending != "":
		return completed(s.State, s.EndCause, Answer{Effect: Complete, Awaited: EndWork})
	}
	return do(None)
}

// completed returns the answer for a request that has waited for the work. If the state has no transition by the
// cause, there is nothing more to do.
func completed(state statefs.State, cause statefs.Cause, complete Answer) Answer {
	to, err := statefs.Next(state, cause)
	if err == nil && !to.Live() {
		return by(Finish, cause)
	}
	if err == nil {
		complete.Cause = cause
	}
	return complete
}

func (o WorkEnded) decide(s Snapshot, e Env) Answer {
	switch {
	case o.Detached:
		return do(Detach)
	case s.Ending == "" && o.Interrupted:
		return interrupted(s, e)
	case s.Ending != "" && o.ByCancel:
		return by(NoteEnd, s.EndCause)
	case o.EndedBy != "": // an earlier daemon had begun to end it
		return by(NoteEnd, o.EndedBy)
	case !o.Failed:
		return Answer{Effect: NoteEnd, Cause: statefs.CauseDone, Counts: true}
	case o.StallCancels:
		return Answer{Effect: CancelStalled, Cause: statefs.CauseCancel, Counts: true}
	}
	return do(NoteFailure)
}

// interrupted leaves an operation whose work ended with the daemon where the next daemon finds it: in the queue, or
// paused if it is paused.
func interrupted(s Snapshot, e Env) Answer {
	switch {
	case e.Restart == catalog.RestartFail:
		return by(GiveUp, statefs.CauseFailed)
	case s.State == statefs.Running:
		return by(Interrupt, statefs.CauseInterrupted)
	}
	return do(Interrupt)
}

// An operation that is paused starts again once it is resumed and due.
func (o EndNoted) decide(s Snapshot, _ Env) Answer {
	if o.Cause == statefs.CauseDone && o.Step {
		return do(NextStep)
	}
	to, err := statefs.Next(statefs.Running, o.Cause)
	switch {
	case err != nil || !to.Live():
		return by(Finish, o.Cause)
	case s.State == statefs.Paused && o.Cause != statefs.CauseNeedsPerson:
		return by(StayPaused, o.Cause)
	}
	return by(GoOn, o.Cause)
}

func (o StepReached) decide(s Snapshot, e Env) Answer {
	awaited := s.Pausing || s.Ending != ""
	switch {
	case o.Move == steps.Over:
		return do(FinishSteps)
	case !o.Done && o.Move == steps.Gate:
		return by(Gate, statefs.CauseGate)
	case !o.Done:
		return do(None)
	case o.Move == steps.Start && s.State == statefs.Running && !awaited && o.SamePlaces && !e.Draining && !e.Stopping:
		return do(BeginStep)
	case s.Ending != "":
		return completed(s.State, s.EndCause, Answer{Effect: CompleteStep, Awaited: EndWork}) // the step had ended before
	case s.State == statefs.Paused:
		return do(StayPaused)
	case s.Pausing:
		return completed(s.State, statefs.CausePause, Answer{Effect: CompleteStep, Awaited: StopWork})
	case o.Move == steps.Gate:
		return by(Gate, statefs.CauseGate)
	}
	return by(QueueStep, statefs.CauseNextStep)
}

// The operation has ended when no optional step is at work or is started later.
func (o OptionalSeen) decide(Snapshot, Env) Answer {
	if o.Running || o.Unfinished {
		return do(Wait)
	}
	return by(FinishOptional, statefs.CauseAllDone)
}

func (o StallChanged) decide(Snapshot, Env) Answer {
	if o.Stalled && o.Ends {
		return do(EndStalled)
	}
	return do(NoteStall)
}

func (DaemonStops) decide(Snapshot, Env) Answer { return do(LeaveWork) }
