// Package decide says what facts mean for an operation: what its markers, the rename of one and a request do to it,
// where it belongs in the queue, and what its record is when it ends. Each decision is a function of data alone, so a
// table test covers it. The daemon collects the facts before and carries out the answer after.
package decide

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Operation is what the daemon knows of an operation.
type Operation struct {
	State    statefs.State
	Ended    bool           // the daemon manages it no longer
	HasSteps bool           // its job has steps
	Working  bool           // its main work exists: that of its job, or of its current required step
	Pausing  bool           // a pause waits for the work to stop
	Ending   statefs.Action // the request that waits for the work to end, such as a cancel, "" for none
	Resume   statefs.Cause  // how a resume without work goes on
}

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

// Marker is what the observed markers of an operation mean.
type Marker uint8

// The meanings.
const (
	Missing Marker = iota // none exists
	Kept                  // the marker of the daemon exists, alone
	Extra                 // others exist beside the marker of the daemon
	Moved                 // a person renamed it
	Moving                // it is being renamed: observe it again
)

// Markers compares the observed markers of an operation with its state in memory.
func Markers(state statefs.State, seen []statefs.State) Marker {
	switch own := slices.Contains(seen, state); {
	case len(seen) == 0:
		return Missing
	case own && len(seen) == 1:
		return Kept
	case own:
		return Extra
	case len(seen) > 1:
		return Moving
	}
	return Moved
}

// Standing is the place of an operation in the queue as of its last reconcile. The queue may have admitted it since.
type Standing uint8

// The standings.
const (
	Outside Standing = iota
	Waiting
	Holding
	KeepsTurn // cannot start and keeps the turn for its key
)

// StandingOf returns the standing that follows from the state of an operation, whose present one is now. An operation
// that waits or is admitted keeps its standing while it is queued: its admission decides. shares means that an optional
// step uses its places.
func StandingOf(o Operation, now Standing, shares bool, key string, order queue.KeyOrder) Standing {
	turn := KeepsTurn
	if key == "" || order == queue.AnyOrder {
		turn = Outside
	}
	switch {
	case o.Ended:
		return Outside
	case o.State == statefs.Queued && !o.Working:
		// Under ByPriority, an operation that waits for its parents has no turn: they may use the same key.
		if now == Waiting || now == Holding || order == queue.ByPriority {
			return now
		}
		return turn
	case o.State == statefs.Running, o.Working, shares:
		return Holding
	case o.State == statefs.Trailing:
		return Outside
	}
	return turn
}

// Lost is a live record whose marker a start did not find.
type Lost struct {
	Renamed string // the name of its file, which is its bare ID or has an unknown ending, "" for none
	Under   string // the marker of another operation that is its file, "" for none
}

// LostMarkers returns what a start does about live records without a marker, where found markers exist. If every marker
// is gone, and there was more than one, this is taken for an accident and no cancel.
func LostMarkers(lost []Lost, found int) []Effect {
	effects := make([]Effect, len(lost))
	accident := found == 0 && len(lost) > 1 && !slices.ContainsFunc(lost, func(l Lost) bool { return l.Renamed != "" })
	for i, l := range lost {
		switch {
		case l.Renamed != "":
			effects[i] = Undo
		case l.Under != "", accident:
			effects[i] = Restore
		default:
			effects[i] = Cancel
		}
	}
	return effects
}
