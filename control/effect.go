package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// effect defines when a request has taken effect. A waiting client is answered when the daemon has carried the request
// out: its file is then gone from jobs/ and taken/. The daemon removes it from there last, after the effect is durable.
type effect struct {
	// what describes the effect to people; docs/http-control.md contains it.
	what string
	// occurred reports whether the effect is there.
	occurred func(*actionOutcome) bool
	// holds reports whether the effect is there although it is not durable, as on a full disk; nil: it never is.
	holds func(*actionOutcome) bool
	// held describes that to people.
	held string
	// ends means that the effect occurs exactly when the operation has ended.
	ends bool
}

// effects has one row per action.
var effects = map[statefs.Action]effect{
	statefs.Pause: {
		what:     "its marker is `paused`: nothing of it moves",
		occurred: isPaused,
		// The work is stopped before its marker is renamed.
		holds: isPaused, held: "it is paused",
	},
	statefs.Resume: {
		what:     "its marker is `paused` no longer, and its work goes on",
		occurred: isResumed,
		// The marker is renamed before the work goes on.
		holds: func(c *actionOutcome) bool { return c.carriedOut && isResumed(c) }, held: "it is resumed",
	},
	statefs.Cancel: {
		what: "it has ended as `cancelled`; a `trailing` operation as `completed`, without the rest of its optional steps",
		occurred: func(c *actionOutcome) bool {
			return c.state == statefs.Cancelled || c.hasTransition(hasCause(statefs.CauseCancel))
		},
		// Neither the marker nor the record shows that the work has ended.
		holds: func(c *actionOutcome) bool { return c.carriedOut }, held: "its work has ended",
		ends: true,
	},
	statefs.ForceCancel: {
		what: "it has ended as `cancelled`; a `trailing` operation as `completed`, without the rest of its optional steps",
		occurred: func(c *actionOutcome) bool {
			return c.state == statefs.Cancelled || c.hasTransition(hasCause(statefs.CauseCancel))
		},
		// Neither the marker nor the record shows that the work has ended.
		holds: func(c *actionOutcome) bool { return c.carriedOut }, held: "its work has ended",
		ends: true,
	},
	statefs.Retry: {
		what: "it is `queued` again, or its optional step is to be done again",
		occurred: func(c *actionOutcome) bool {
			return c.actionRecorded() || c.hasTransition(hasCause(statefs.CauseRetry))
		},
	},
	statefs.Skip: {
		what:     "the step is `skipped`, and the operation goes on",
		occurred: (*actionOutcome).actionRecorded,
	},
	statefs.Set: {
		what:     "the record has the values",
		occurred: (*actionOutcome).actionRecorded,
	},
	statefs.Approve: {
		what:     "the step is approved, and the operation goes on",
		occurred: (*actionOutcome).actionRecorded,
	},
	statefs.Reject: {
		what:     "it has ended as `failed`, with the error code `rejected`",
		occurred: (*actionOutcome).actionRecorded,
		ends:     true,
	},
	statefs.Prioritize: {
		what:     "the record has the priority, and the queue goes by it",
		occurred: (*actionOutcome).prioritized,
	},
}

func isPaused(c *actionOutcome) bool { return c.state == statefs.Paused }

// isResumed reports whether a resume took effect; the work may end before anyone observes it running.
func isResumed(c *actionOutcome) bool {
	return c.state.Live() && c.state != statefs.Paused || c.state != statefs.Cancelled && c.ended && c.hasTransition(resumed)
}

func hasCause(cause statefs.Cause) func(statefs.PastTransition) bool {
	return func(t statefs.PastTransition) bool { return t.Cause == cause }
}

func resumed(t statefs.PastTransition) bool { return t.From == statefs.Paused && t.To.Live() }

// actionRequest is a request about to be made, with the operation as it was before.
type actionRequest struct {
	action statefs.Action
	// before is the record, nil if there is no readable one.
	before *statefs.Record
	// priority is the requested priority of a prioritize, nil for the first place.
	priority *int
}

// actionOutcome is the operation after a request was carried out, or after the operation ended.
type actionOutcome struct {
	*actionRequest

	state  statefs.State // of the marker, or the terminal state; "" of a foreign operation that is gone
	ended  bool
	record *statefs.Record // nil if there is no readable one
	// carriedOut is set if the daemon has carried the request out and could not make that durable yet.
	carriedOut bool
}

// hasTransition reports whether the operation has made a matching transition since before the request.
func (c *actionOutcome) hasTransition(such func(statefs.PastTransition) bool) bool {
	if c.before == nil || c.record == nil {
		return false
	}
	now, was := c.record.Transitions, c.before.Transitions
	first := 0
	if len(was) > 0 {
		first = slices.Index(now, was[len(was)-1]) + 1
	}
	return slices.ContainsFunc(now[first:], such)
}

// actionRecorded reports whether the record shows that the request was carried out. A foreign operation has no record;
// its marker decides.
func (c *actionOutcome) actionRecorded() bool {
	if c.record == nil {
		return c.state != "" && !c.action.AppliesIn(c.state)
	}
	return lastActionAt(c.record, c.action).After(lastActionAt(c.before, c.action))
}

// prioritized reports whether the operation has the requested priority. An operation that is first already keeps its
// priority when the first place is requested.
func (c *actionOutcome) prioritized() bool {
	switch {
	case c.record == nil:
		return false
	case c.priority != nil:
		return c.record.Priority == *c.priority
	}
	return c.action.AppliesIn(c.state) || c.before != nil && c.record.Priority != c.before.Priority
}

// tookEffect reports whether the request took effect.
func (c *actionOutcome) tookEffect() bool { return effects[c.action].occurred(c) }

// newActionRequest describes a request about to be made. It reads the record only if the client waits.
func (s *Server) newActionRequest(id statefs.ID, ask statefs.Action, wait time.Duration) (*actionRequest, error) {
	q := &actionRequest{action: ask}
	if wait == 0 {
		return q, nil
	}
	var err error
	q.before, err = s.recordOf(id)
	return q, err
}

// recordOf returns a record, nil if there is no readable one.
func (s *Server) recordOf(id statefs.ID) (*statefs.Record, error) {
	rec, err := s.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) || isUnreadable(err) {
		return nil, nil //nolint:nilnil // documented
	}
	return rec, err
}

// sendActionReply answers a request that was made: at once, or when it took effect or the wait is over.
func (s *Server) sendActionReply(w *responseWriter, r *http.Request, f *follower, q *actionRequest, out actionReply,
	wait time.Duration,
) error {
	switch {
	case out.Changed != nil && !*out.Changed:
		return s.sendJSON(w, r, http.StatusOK, out)
	case wait == 0:
		return s.sendJSON(w, r, http.StatusAccepted, out)
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	found, settled, err := s.awaitEffect(ctx, f, q)
	if err != nil {
		return err
	}
	took := settled && found.tookEffect()
	if rule := effects[q.action]; !settled && !out.Foreign && rule.holds != nil {
		requests, _ := s.status.CarriedOut(f.id)
		found.carriedOut = requests&statefs.Name{Action: q.action}.Bit() != 0
		if rule.holds(&found) {
			took, settled, out.Durable = true, true, new(bool)
			out.Message += ": " + rule.held + ", and the daemon could not make that durable yet"
		}
	}
	out.State, out.Pending = found.state, !settled
	if took || !out.Foreign {
		out.TookEffect = &took
	}
	if found.state == "" && out.Foreign {
		out.Message += "; it has ended since"
	}
	if settled {
		return s.sendJSON(w, r, http.StatusOK, out)
	}
	return s.sendJSON(w, r, http.StatusAccepted, out)
}

// awaitEffect waits until a request is carried out and has its effect, or until the operation has ended. settled is
// false when ctx ended first.
func (s *Server) awaitEffect(ctx context.Context, f *follower, q *actionRequest) (found actionOutcome,
	settled bool, err error,
) {
	found.actionRequest = q
	for {
		outstanding, err := f.requestPending(q.action) // first: reads after it see the effect of a finished request
		if err != nil {
			return found, false, err
		}
		if err := s.observeOutcome(f, &found); err != nil {
			return found, false, err
		}
		if found.ended || !outstanding && found.settled() {
			return found, true, nil
		}
		select {
		case <-f.Wake():
		case <-ctx.Done():
			return found, false, nil
		}
	}
}

// observeOutcome reads the current state of the operation.
func (s *Server) observeOutcome(f *follower, found *actionOutcome) (err error) {
	f.changed.Store(true)
	_, gone := f.Snapshot()
	if gone != nil && !errors.Is(gone, fs.ErrNotExist) && !isUnreadable(gone) {
		return gone
	}
	sight, err := s.tree.ObserveAll(f.id)
	if err != nil {
		return err
	}
	if len(sight.States) > 0 {
		found.state = sight.States[0]
	}
	switch {
	case f.end != nil && len(sight.States) == 0:
		// A marker would mean trailing: the result is known before the optional steps have ended.
		found.record, found.state, found.ended = f.end, f.end.Status, true
		if f.end.Trailing {
			found.record, err = s.recordOf(f.id) // f.end was read before the optional steps ended
		}
		return err
	case gone != nil && len(sight.States) == 0:
		found.state, found.ended = "", true // a foreign operation
		return nil
	}
	found.record, err = s.recordOf(f.id)
	return err
}

// settled reports whether a request that was carried out has no further effect. A foreign program may remove the
// request before it acts on it.
func (c *actionOutcome) settled() bool {
	switch {
	case c.record == nil:
		return c.tookEffect() || !c.action.AppliesIn(c.state)
	case !effects[c.action].ends:
		return true
	}
	return !c.action.Cancels() && !c.actionRecorded()
}

// requestPending reports whether a request is not carried out yet: its file is in jobs/ or taken/. The follower is
// woken when the file leaves either.
func (f *follower) requestPending(ask statefs.Action) (bool, error) {
	if f.unsubscribeTaken != nil {
		f.unsubscribeTaken()
		f.unsubscribeTaken = nil
	}
	if f.hub.tree.Requested(f.id, ask) {
		return true, nil
	}
	cancel, err := f.hub.logs.Subscribe(f.hub.tree.TakenPath(f.id, ask), f.wake)
	if errors.Is(err, fs.ErrNotExist) {
		return f.hub.tree.Requested(f.id, ask), nil // a starting daemon moves requests from taken/ back
	}
	if err != nil {
		return false, fmt.Errorf("wait until the request %s of %s is carried out: %w", ask, f.id, err)
	}
	f.unsubscribeTaken = cancel
	return true, nil
}
