// Package decide says what an observation means for an operation: [Decide] reads what is known of the operation, what
// was seen and what else counts, and answers with one effect. It is a function of data alone, so rows test it. The
// daemon observes before and carries the answer out after. Which operation the queue admits, which step comes next and
// what a person may do about a step are facts here: packages queue, steps and acts find them out.
//
//	observation                                      possible effects
//	MarkersSeen     the markers in jobs/             None, Confirm, ObserveAgain, RemoveExtra; of a rename by a
//	                                                 person Undo, Accept, AcceptStop, AcceptStart, AcceptRetry, WaitAgain
//	MarkerGone      its marker is gone, confirmed    PutBack, Restore, Cancel
//	MarkerLost      a start did not find its marker  PutBack, Restore, Cancel
//	Found           a start takes it over            None, WaitAgain, CutOff, CatchUp
//	Requested       a request                        Ignore, Drop, Merge, Transition, StopWork, Continue, EndWork,
//	                                                 KillWork, Prioritize, Retry, Step
//	WorkSeen        how its work stands              None, TakeRequests, Complete, Finish
//	WorkEnded       its run has ended                Detach, Interrupt, GiveUp, NoteEnd, NoteFailure, CancelStalled
//	AttemptFailed   a run failed or was cut off      NoteEnd, PlanRetry
//	RetryPlanned    when it can be tried again       NoteEnd
//	EndNoted        what its record says of the end  NextStep, GoOn, StayPaused, Finish
//	StepReached     the step that comes next         None, BeginStep, FinishSteps, Gate, QueueStep, StayPaused,
//	                                                 CompleteStep, Finish
//	LimitExpired    a deadline has passed            None, EndExpired, Expire
//	TimeCame        no time is ahead of it           None, Due
//	Undisturbed     nothing else happened to it      Wait, TryStart, Trail, FollowWork
//	ParentSeen      whether and how a parent ended   None, Wait, LeaveToPerson
//	Admitted        the queue lets it start          None, Begin
//	OptionalSeen    its optional steps               Wait, FinishOptional
//	StallChanged    its work stalls or moves again   NoteStall, EndStalled
//	DaemonStops     the daemon stops                 LeaveWork
//
// [End] and [EndTrailing] complete the record of an operation whose end is decided. [StandingOf] is its place in the
// queue, which follows from its state.
package decide

import (
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// Snapshot is what the daemon knows of an operation.
type Snapshot struct {
	State    statefs.State
	Ended    bool           // the daemon manages it no longer
	HasSteps bool           // its job has steps
	Working  bool           // its main work exists: that of its job, or of its current required step
	Pausing  bool           // a pause waits for the work to stop
	Ending   statefs.Action // the request that waits for the work to end, such as a cancel, "" for none
	EndCause statefs.Cause  // of the transition that this request makes
	Resume   statefs.Cause  // how a resume without work goes on
}

// Env is what else a decision reads.
type Env struct {
	Draining, Stopping bool // the daemon starts nothing more; it stops

	// Attempts and MaxAttempts count the failed attempts before, and the number that the job allows.
	Attempts, MaxAttempts int
	// Deaths counts the deaths within the period of the crash limit, if this is one of them; Burst is the limit.
	Deaths, Burst int
	Restart       catalog.Restart // the rule of the job for work that was cut off

	// Markers, Lost and Misnamed count, at a start, the markers in jobs/, the live records without one, and those of
	// them whose marker has another name.
	Markers, Lost, Misnamed int
}

// Effect is what the daemon does because of an observation.
type Effect string

// The effects.
const (
	None Effect = "none"
	Wait Effect = "wait" // nothing more can be done

	Confirm      Effect = "confirm"       // the marker is missing: observe again later, then MarkerGone
	ObserveAgain Effect = "observe again" // the marker is being renamed
	RemoveExtra  Effect = "remove extra"  // remove the markers beside its own
	Undo         Effect = "undo"          // rename the marker back
	PutBack      Effect = "put back"      // give a file with a wrong name the name of the marker again
	Restore      Effect = "restore"       // make the marker again
	Cancel       Effect = "cancel"        // cancel an operation whose marker was removed
	Accept       Effect = "accept"        // the rename was the transition by Cause
	AcceptStop   Effect = "accept, stop"  // the same, and the work is stopped
	AcceptStart  Effect = "accept, start" // the same, and the work is started through the queue
	AcceptRetry  Effect = "accept, retry" // the same, unless the retry is refused
	WaitAgain    Effect = "wait again"    // move the marker on by Cause, to where the operation waits for its time
	CatchUp      Effect = "catch up"      // record the transition by Cause, which only the marker shows
	CutOff       Effect = "cut off"       // its work is gone with an earlier daemon: then AttemptFailed

	Ignore     Effect = "ignore"     // the log says that there is nothing to do
	Drop       Effect = "drop"       // nothing, without a line
	Merge      Effect = "merge"      // the request takes the place of the same one under way
	Transition Effect = "transition" // by Cause
	StopWork   Effect = "stop work"  // stop the work, and make the transition when it has stopped
	Continue   Effect = "continue"   // take the pause back, which the work has not reached
	EndWork    Effect = "end work"   // end the work, and make the transition when it has ended
	KillWork   Effect = "kill work"  // the same without a grace period
	Prioritize Effect = "prioritize"
	Retry      Effect = "retry" // a transition, unless it is refused
	Step       Effect = "step"  // package acts decides by the steps and the arguments

	TakeRequests Effect = "take requests" // only requests count before the work has ended
	Complete     Effect = "complete"      // make the transition by Cause, if any, that a request waits for
	CompleteStep Effect = "complete step" // the same, after a step
	Finish       Effect = "finish"        // end the operation by Cause

	Detach        Effect = "detach"         // the command goes on without the daemon
	Interrupt     Effect = "interrupt"      // leave it to the next daemon; a Cause brings it back to the queue
	GiveUp        Effect = "give up"        // it was cut off, and its job does not let it begin again
	NoteEnd       Effect = "note end"       // the run ended by Cause: then EndNoted
	NoteFailure   Effect = "note failure"   // the run failed: then AttemptFailed
	CancelStalled Effect = "cancel stalled" // the run ended by Cause, because it had stalled
	PlanRetry     Effect = "plan retry"     // find out when it can be tried again: then RetryPlanned
	GoOn          Effect = "go on"          // the operation goes on without its run, by Cause
	StayPaused    Effect = "stay paused"    // the run is over, by Cause or because its step is done

	NextStep    Effect = "next step"    // a step is done: then StepReached
	BeginStep   Effect = "begin step"   // at once, with the lane and limits of the step before
	QueueStep   Effect = "queue step"   // through the queue
	FinishSteps Effect = "finish steps" // all required steps are done
	Gate        Effect = "gate"         // wait for an approval

	EndExpired     Effect = "end expired"     // end the work, whose time is over
	Expire         Effect = "expire"          // end the operation, whose time is over
	Due            Effect = "due"             // bring it into the queue
	TryStart       Effect = "try to start"    // ParentSeen, StepReached and Admitted tell whether it starts
	Begin          Effect = "begin"           // start its work
	LeaveToPerson  Effect = "leave to person" // a parent has not succeeded
	Trail          Effect = "trail"           // run optional steps: then OptionalSeen
	FinishOptional Effect = "finish optional" // the last optional step has ended
	FollowWork     Effect = "follow work"     // run optional steps, and record what the work reports
	NoteStall      Effect = "note stall"      // the record tells that the work stalls or moves again
	EndStalled     Effect = "end stalled"     // the same, and the work is ended
	LeaveWork      Effect = "leave work"      // stop the work with the daemon, or leave it to its keeper
)

// last are the effects after which a reconcile ends.
var last = map[Effect]bool{
	Wait: true, Confirm: true, TakeRequests: true, Expire: true, LeaveToPerson: true, LeaveWork: true,
	Detach: true, Interrupt: true, GiveUp: true,
}

// Answer is what the daemon does because of an observation.
type Answer struct {
	Effect Effect
	Cause  statefs.Cause // of the transition
	Line   string        // for the log of the operation, "" for none
	// Awaited is the effect for which a request has waited that is complete: StopWork or EndWork.
	Awaited Effect

	// Of a run that failed: it counts as an attempt, as a death; a person must act because of the deaths.
	Counts, Dies, Crashed bool
}

// Last reports whether nothing more can be done in this reconcile.
func (a Answer) Last() bool { return last[a.Effect] }

// Decide returns what an observation means for an operation.
func Decide(s Snapshot, o Observation, e Env) Answer { return o.decide(s, e) }

// cancelLine returns the line in the log for the cancel of an operation in a state.
func cancelLine(state statefs.State) string {
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

func answer(effect Effect, cause statefs.Cause) Answer {
	return Answer{Effect: effect, Cause: cause, Line: lines[cause]}
}

// by returns an effect with a cause that no line announces.
func by(effect Effect, cause statefs.Cause) Answer { return Answer{Effect: effect, Cause: cause} }

// do returns an effect without a cause.
func do(effect Effect) Answer { return Answer{Effect: effect} }
