package statefs

import (
	"fmt"
	"time"
)

// Reason is why a live operation does not run.
type Reason string

// The reasons.
const (
	WaitsToStart       Reason = "starting"      // nothing is in the way: it is about to
	WaitsForLane       Reason = "lane_full"     // its lane has no room
	WaitsPausedLane    Reason = "lane_paused"   // its lane starts nothing
	WaitsForRate       Reason = "rate"          // its lane may start the next one later
	WaitsForLimit      Reason = "limit"         // a limit has no room
	WaitsForKey        Reason = "key"           // another operation has its key, or comes before it
	WaitsForOthers     Reason = "after"         // operations that it comes after have not ended
	WaitsForTime       Reason = "not_before"    // its time has not come
	WaitsUnknownLane   Reason = "unknown_lane"  // the daemon has no such lane
	WaitsUnknownLimit  Reason = "unknown_limit" // the daemon has no such limit
	WaitsForNextDaemon Reason = "draining"      // the daemon starts nothing any more
)

// Waiting says why a live operation does not run. Only the daemon knows it; it stands in no file.
type Waiting struct {
	Reason Reason `json:"reason"`
	// HeldBy is the operation that holds what it waits for, where there is one.
	HeldBy ID `json:"held_by,omitzero"`
	// NeedsPerson is the operation that waits for a person, where this one comes after it, or after one that does: somebody has to act before it
	// can start.
	NeedsPerson ID `json:"needs_person,omitzero"`
	// Lane is its lane, Limit the limit without room, where that is the reason, and Key its key where that is.
	Lane  string `json:"lane,omitempty"`
	Limit string `json:"limit,omitempty"`
	Key   string `json:"key,omitempty"`
	// Position is its place in the queue of its lane, from 1; 0 when it has none.
	Position int `json:"position,omitempty"`
	// Since is when it began to wait, for this reason or another.
	Since *time.Time `json:"since,omitempty"`
	// Note is what was given as the reason when its lane was paused.
	Note string `json:"note,omitempty"`
	// Until is when the reason ends by time alone.
	Until *time.Time `json:"until,omitempty"`
}

// Sentence says it to a person.
func (w *Waiting) Sentence() string {
	text := w.reason()
	if w.HeldBy != (ID{}) && w.Reason != WaitsForOthers {
		text += fmt.Sprintf(", held by %s", w.HeldBy)
	}
	if p := w.NeedsPerson; !p.IsZero() {
		if p != w.HeldBy {
			text += fmt.Sprintf(", and operation %s waits for a person", p)
		}
		text += fmt.Sprintf("; 'jobdir show %s' says why, 'jobdir retry %s' goes on with it, 'jobdir cancel %s' ends it", p, p, p)
	}
	if w.Until != nil && w.Reason != WaitsForTime {
		text += ", until " + w.Until.Local().Format("2006-01-02 15:04:05")
	}
	if w.Note != "" {
		text += fmt.Sprintf(" (%s)", w.Note)
	}
	return text
}

func (w *Waiting) reason() string {
	switch w.Reason {
	case WaitsForLane:
		return fmt.Sprintf("lane %q is full", w.Lane)
	case WaitsPausedLane:
		return fmt.Sprintf("lane %q is paused", w.Lane)
	case WaitsForRate:
		return fmt.Sprintf("lane %q has started as many as its rate allows", w.Lane)
	case WaitsForLimit:
		return fmt.Sprintf("limit %q is reached", w.Limit)
	case WaitsForKey:
		return fmt.Sprintf("key %q is taken", w.Key)
	case WaitsForOthers:
		if !w.NeedsPerson.IsZero() && w.NeedsPerson == w.HeldBy {
			return fmt.Sprintf("operation %s waits for a person", w.HeldBy)
		}
		return fmt.Sprintf("operation %s has not ended", w.HeldBy)
	case WaitsForTime:
		if w.Until == nil {
			return "its time has not come"
		}
		return "it is to start at " + w.Until.Local().Format("2006-01-02 15:04:05")
	case WaitsUnknownLane:
		return fmt.Sprintf("the daemon has no lane %q; add it to its configuration", w.Lane)
	case WaitsUnknownLimit:
		return fmt.Sprintf("the daemon has no limit %q; add it to its configuration", w.Limit)
	case WaitsForNextDaemon:
		return "the daemon is stopping and starts nothing new"
	case WaitsToStart:
	}
	return "it is about to start"
}
