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

// effect says what counts as the effect of a request. Whoever waits for it is answered when the daemon has carried the request out, which is when
// the request has left jobs/ and taken/: it is removed from there last, when what it did is durable.
type effect struct {
	// what says it to people; docs/http.md has it.
	what string
	// shows reports whether it is there.
	shows func(*carried) bool
	// ends says that it is there once the operation has ended, and no sooner.
	ends bool
}

// effects has one row for each request.
var effects = map[statefs.Ask]effect{
	statefs.Pause: {
		what:  "its marker is `paused`: nothing of it moves",
		shows: func(c *carried) bool { return c.state == statefs.Paused },
	},
	statefs.Resume: {
		what: "its marker is `paused` no longer, and its work goes on",
		shows: func(c *carried) bool { // its end may come so soon that nobody sees it running
			return c.state.Live() && c.state != statefs.Paused || c.state != statefs.Cancelled && c.ended && c.went(resumed)
		},
	},
	statefs.Cancel: {
		what:  "it has ended as `cancelled`",
		shows: func(c *carried) bool { return c.state == statefs.Cancelled || c.went(by(statefs.CauseCancel)) },
		ends:  true,
	},
	statefs.Retry: {
		what:  "it is `queued` again, or its optional step is to be done again",
		shows: func(c *carried) bool { return c.acted() || c.went(by(statefs.CauseRetry)) },
	},
	statefs.Skip: {
		what:  "the step is `skipped`, and the operation goes on",
		shows: (*carried).acted,
	},
	statefs.Set: {
		what:  "the record has the values",
		shows: (*carried).acted,
	},
	statefs.Approve: {
		what:  "the step is approved, and the operation goes on",
		shows: (*carried).acted,
	},
	statefs.Reject: {
		what:  "it has ended as `failed`, with the error code `rejected`",
		shows: (*carried).acted,
		ends:  true,
	},
	statefs.Prioritize: {
		what:  "the record has the priority, and the queue goes by it",
		shows: (*carried).prioritized,
	},
}

func by(cause statefs.Cause) func(statefs.Transited) bool {
	return func(t statefs.Transited) bool { return t.Cause == cause }
}

func resumed(t statefs.Transited) bool { return t.From == statefs.Paused && t.To.Live() }

// request is one request that is made, and how its operation was before.
type request struct {
	ask statefs.Ask
	// before is the record, nil when there is none that can be read.
	before *statefs.Record
	// nothing says that the request means nothing in the state in which it found the operation.
	nothing bool
	// priority is what a prioritize asks for, nil for the first place.
	priority *int
}

// carried is an operation with which a request has been carried out, or which has ended.
type carried struct {
	*request

	state  statefs.State // as the marker says it, or the last one; "" of a foreign operation that is gone
	ended  bool
	record *statefs.Record // nil when there is none that can be read
}

// went reports whether the operation has made such a transition since before the request.
func (c *carried) went(such func(statefs.Transited) bool) bool {
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

// acted reports whether the record says that the request was carried out: of a foreign operation, which has none, its marker says it.
func (c *carried) acted() bool {
	if c.record == nil {
		return c.state != "" && !c.ask.Means(c.state)
	}
	return lastAct(c.record, c.ask).After(lastAct(c.before, c.ask))
}

// prioritized reports whether the operation has the priority. One that asked for the first place may have it without another one.
func (c *carried) prioritized() bool {
	switch {
	case c.record == nil:
		return false
	case c.priority != nil:
		return c.record.Priority == *c.priority
	}
	return c.ask.Means(c.state) || c.before != nil && c.record.Priority != c.before.Priority
}

// took reports whether the request took effect.
func (c *carried) took() bool { return !c.nothing && effects[c.ask].shows(c) }

// requestFor is a request that is about to be made. The record is read only when somebody is going to wait.
func (s *Server) requestFor(id statefs.ID, ask statefs.Ask, wait time.Duration) (*request, error) {
	q := &request{ask: ask}
	if wait == 0 {
		return q, nil
	}
	var err error
	q.before, err = s.recordOf(id)
	return q, err
}

// recordOf returns a record, nil when there is none that can be read.
func (s *Server) recordOf(id statefs.ID) (*statefs.Record, error) {
	rec, err := s.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) || isUnreadable(err) {
		return nil, nil //nolint:nilnil // documented
	}
	return rec, err
}

// sendAsked answers a request that has been made: at once, or when it took effect or that time is over.
func (s *Server) sendAsked(w *answer, r *http.Request, f *follower, q *request, out asked, wait time.Duration) error {
	if wait == 0 {
		return s.sendJSON(w, r, http.StatusAccepted, out)
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	found, settled, err := s.awaitEffect(ctx, f, q)
	if err != nil {
		return err
	}
	took := settled && found.took()
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

// awaitEffect waits until a request has been carried out and its effect is there, or until the operation has ended. settled is false when ctx ended
// first.
func (s *Server) awaitEffect(ctx context.Context, f *follower, q *request) (found carried, settled bool, err error) {
	found.request = q
	for {
		outstanding, err := f.outstanding(q.ask) // before all else: what is read afterwards has its effect
		if err != nil {
			return found, false, err
		}
		if err := s.find(f, &found); err != nil {
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

// find looks how the operation of a request is.
func (s *Server) find(f *follower, found *carried) (err error) {
	f.changed.Store(true)
	_, gone := f.Snapshot()
	if gone != nil && !errors.Is(gone, fs.ErrNotExist) && !isUnreadable(gone) {
		return gone
	}
	sight, err := s.tree.Look(f.id)
	if err != nil {
		return err
	}
	if len(sight.States) > 0 {
		found.state = sight.States[0]
	}
	switch {
	case f.end != nil && len(sight.States) == 0: // and not one that trails: its end is known before its optional steps have ended
		found.record, found.state, found.ended = f.end, f.end.Status, true
		if f.end.Trailing {
			found.record, err = s.recordOf(f.id) // how it trailed was not known then
		}
		return err
	case gone != nil && len(sight.States) == 0:
		found.state, found.ended = "", true // a foreign one
		return nil
	}
	found.record, err = s.recordOf(f.id)
	return err
}

// settled reports whether nothing more comes of a request that has been carried out. A foreign program takes a request away when it likes, and acts on
// it afterwards.
func (c *carried) settled() bool {
	switch {
	case c.record == nil:
		return c.took() || !c.ask.Means(c.state)
	case !effects[c.ask].ends:
		return true
	}
	return c.ask != statefs.Cancel && !c.acted()
}

// outstanding reports whether a request is still to be carried out: it stands in jobs/, or in taken/. The follower is woken when it leaves either.
func (f *follower) outstanding(ask statefs.Ask) (bool, error) {
	if f.untaken != nil {
		f.untaken()
		f.untaken = nil
	}
	if f.hub.tree.Requested(f.id, ask) {
		return true, nil
	}
	cancel, err := f.hub.logs.Subscribe(f.hub.tree.TakenPath(f.id, ask), f.wake)
	if errors.Is(err, fs.ErrNotExist) {
		return f.hub.tree.Requested(f.id, ask), nil // a start puts back what was taken
	}
	if err != nil {
		return false, fmt.Errorf("wait until the request %s of %s is carried out: %w", ask, f.id, err)
	}
	f.untaken = cancel
	return true, nil
}
