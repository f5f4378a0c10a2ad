package statefs

import (
	"fmt"
	"time"
)

// WaitReason is why a live operation does not run.
type WaitReason string

// The reasons.
const (
	WaitsToStart       WaitReason = "starting"      // nothing prevents it: it is about to start
	WaitsForLane       WaitReason = "lane_full"     // its lane is full
	WaitsPausedLane    WaitReason = "lane_paused"   // its lane is paused
	WaitsForRate       WaitReason = "rate"          // the rate limit of its lane allows the next start later
	WaitsForLimit      WaitReason = "limit"         // a limit is exhausted
	WaitsForKey        WaitReason = "key"           // another operation holds its key, or is before it
	WaitsForOthers     WaitReason = "after"         // operations that it waits for have not ended
	WaitsForTime       WaitReason = "not_before"    // its time has not come
	WaitsUnknownLane   WaitReason = "unknown_lane"  // the daemon has no such lane
	WaitsUnknownLimit  WaitReason = "unknown_limit" // the daemon has no such limit
	WaitsForResources  WaitReason = "resources"     // the daemon has too few free descriptors
	WaitsForNextDaemon WaitReason = "draining"      // the daemon starts nothing any more
)

// Waiting explains why a live operation does not run. Only the daemon knows it; no file holds it.
type Waiting struct {
	Reason WaitReason `json:"reason"`
	// HeldBy is the operation that holds what this one waits for, if there is one.
	HeldBy ID `json:"held_by,omitzero"`
	// NeedsPerson is an operation that waits for a person and on which this one depends, directly
	// or through others.
	NeedsPerson ID `json:"needs_person,omitzero"`
	// Lane is its lane; Limit is the exhausted limit and Key its key, if that is the reason.
	Lane  string `json:"lane,omitempty"`
	Limit string `json:"limit,omitempty"`
	Key   string `json:"key,omitempty"`
	// Position is its position in the queue of its lane, from 1; 0 if it has none.
	Position int `json:"position,omitempty"`
	// Since is when it began to wait, for this or another reason.
	Since *time.Time `json:"since,omitempty"`
	// Note is the reason given when its lane was paused.
	Note string `json:"note,omitempty"`
	// Until is when the wait ends by time alone.
	Until *time.Time `json:"until,omitempty"`
}

// Sentence returns the reason as text for a person.
func (w *Waiting) Sentence() string {
	text := w.reason()
	if w.HeldBy != (ID{}) && w.Reason != WaitsForOthers {
		text += fmt.Sprintf(", held by %s", w.HeldBy)
	}
	if p := w.NeedsPerson; !p.IsZero() {
		if p != w.HeldBy {
			text += fmt.Sprintf(", and operation %s waits for a person", p)
		}
		text += fmt.Sprintf("; 'jobdir show %s' says why, 'jobdir retry %s' goes on with it, 'jobdir cancel %s' ends it", p,
			p, p)
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
	case WaitsForResources:
		return "the daemon may open too few files more (ulimit -n)"
	case WaitsForNextDaemon:
		return "the daemon is stopping and starts nothing new"
	case WaitsToStart:
	}
	return "it is about to start"
}
