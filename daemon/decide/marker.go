package decide

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// ResumeCause returns the cause with which a resume moves an operation without work: back to its waiting state if it
// is not due yet, else into the queue.
func ResumeCause(rec *statefs.Record, now time.Time) statefs.Cause {
	switch {
	case rec.DueAt == nil || !rec.DueAt.After(now):
		return statefs.CauseRelease
	case rec.Starts > 0:
		return statefs.CauseRetryLater
	}
	return statefs.CauseNotYet
}

func (o MarkersSeen) decide(s Snapshot, _ Env) Answer {
	switch own := slices.Contains(o.States, s.State); {
	case len(o.States) == 0:
		return do(Confirm)
	case own && len(o.States) == 1:
		return do(None)
	case own:
		return do(RemoveExtra)
	case len(o.States) > 1:
		return do(ObserveAgain)
	}
	return moved(s, o.States[0])
}

// moved returns what the rename of its marker to a state means for an operation. Work that exists is not queued, and
// an operation that waits for its time does not run before.
func moved(s Snapshot, to statefs.State) Answer {
	cause, ok := statefs.ManualMove(s.State, to)
	switch {
	case !ok, cause == statefs.CauseRelease && s.Working:
		return do(Undo)
	case cause == statefs.CausePause && s.Working:
		return answer(AcceptStop, cause)
	case cause == statefs.CauseRetry:
		return answer(AcceptRetry, cause)
	case cause != statefs.CauseResume || s.Working:
		return answer(Accept, cause)
	case s.Resume == statefs.CauseRelease:
		return answer(AcceptStart, cause)
	}
	return answer(WaitAgain, s.Resume)
}

// The removal of a marker is a cancel; a marker under a wrong name is none.
func (o MarkerGone) decide(s Snapshot, _ Env) Answer {
	switch o.Found {
	case Misnamed:
		return do(PutBack)
	case Misplaced:
		return do(Restore)
	case Nowhere:
	}
	return Answer{Effect: Cancel, Cause: statefs.CauseMarkerMissing, Line: cancelLine(s.State)}
}

// If every marker is gone, and there was more than one, this is taken for an accident and no cancel.
func (o MarkerLost) decide(s Snapshot, e Env) Answer {
	accident := e.Markers == 0 && e.Lost > 1 && e.Misnamed == 0
	switch {
	case o.Found == Misnamed:
		return do(PutBack)
	case o.Found == Misplaced, accident:
		return do(Restore)
	case s.State == statefs.Running, s.State == statefs.Paused:
		return Answer{Effect: Cancel, Cause: statefs.CauseMarkerMissing, Line: cancelLine(statefs.Running)}
	}
	return by(Cancel, statefs.CauseMarkerMissing)
}

// A marker that a person moved while no daemon ran is a request, as while one runs. The work of a running operation
// that goes on nowhere was cut off.
func (o Found) decide(s Snapshot, _ Env) Answer {
	recorded := s
	recorded.State = o.Recorded
	if move := moved(recorded, s.State); move.Effect == WaitAgain {
		return move
	}
	if s.State == statefs.Running && !o.Adopted {
		return do(CutOff)
	}
	if cause, meant := statefs.ManualMove(o.Recorded, s.State); meant {
		return by(CatchUp, cause) // or the daemon died between moving the marker and writing the record
	}
	return do(None)
}
