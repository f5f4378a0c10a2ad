package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// recordOf returns a record, nil if there is no readable one.
func recordOf(tree *statefs.Tree, id statefs.ID) (*statefs.Record, error) {
	rec, err := tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) || isUnreadable(err) {
		return nil, nil //nolint:nilnil // documented
	}
	return rec, err
}

// sendActionReply answers a request that was made: at once, or when it took effect or the wait is over. A client that
// waits is answered when the file of the request is gone from jobs/ and taken/: the daemon removes it last, after the
// effect is durable.
func (s *actions) sendActionReply(w *front.Response, r *front.Request, f *follower, q statefs.Outcome,
	out api.Answer, wait time.Duration,
) error {
	switch {
	case out.Changed != nil && !*out.Changed:
		return w.SendJSON(http.StatusOK, out)
	case wait == 0:
		return w.SendJSON(http.StatusAccepted, out)
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	settled, err := s.awaitEffect(ctx, f, &q)
	if err != nil {
		return err
	}
	took := settled && q.TookEffect()
	if !settled && !out.Foreign {
		requests, _ := s.view.daemon.CarriedOut(f.id)
		q.CarriedOut = requests&statefs.Name{Action: q.Action}.Bit() != 0
		if held := q.Held(); held != "" {
			took, settled, out.Durable = true, true, new(bool)
			out.Message += ": " + held + ", and the daemon could not make that durable yet"
		}
	}
	out.State, out.Pending = q.State, !settled
	if took || !out.Foreign {
		out.TookEffect = &took
	}
	if q.State == "" && out.Foreign {
		out.Message += "; it has ended since"
	}
	if settled {
		return w.SendJSON(http.StatusOK, out)
	}
	return w.SendJSON(http.StatusAccepted, out)
}

// awaitEffect waits until a request is carried out and has its effect, or until the operation has ended. settled is
// false when ctx ended first.
func (s *actions) awaitEffect(ctx context.Context, f *follower, q *statefs.Outcome) (settled bool, err error) {
	for {
		outstanding, err := f.requestPending(q.Action) // first: reads after it see the effect of a finished request
		if err != nil {
			return false, err
		}
		if err := s.observeOutcome(f, q); err != nil {
			return false, err
		}
		if q.Ended || !outstanding && q.Settled() {
			return true, nil
		}
		select {
		case <-f.Wake():
		case <-ctx.Done():
			return false, nil
		}
	}
}

// observeOutcome reads the current state of the operation.
func (s *actions) observeOutcome(f *follower, found *statefs.Outcome) (err error) {
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
		found.State = sight.States[0]
	}
	switch {
	case f.end != nil && len(sight.States) == 0:
		// A marker would mean trailing: the result is known before the optional steps have ended.
		found.Record, found.State, found.Ended = f.end, f.end.Status, true
		if f.end.Trailing {
			found.Record, err = recordOf(s.tree, f.id) // f.end was read before the optional steps ended
		}
		return err
	case gone != nil && len(sight.States) == 0:
		found.State, found.Ended = "", true // a foreign operation
		return nil
	}
	found.Record, err = recordOf(s.tree, f.id)
	return err
}

// requestPending reports whether a request is not carried out yet: its file is in jobs/ or taken/. The follower is
// woken when the file leaves either.
func (f *follower) requestPending(ask statefs.Action) (bool, error) {
	f.leave(theRequest)
	if f.hub.tree.Requested(f.id, ask) {
		return true, nil
	}
	err := f.subscribe(theRequest, f.hub.tree.TakenPath(f.id, ask))
	if errors.Is(err, fs.ErrNotExist) {
		return f.hub.tree.Requested(f.id, ask), nil // a starting daemon moves requests from taken/ back
	}
	if err != nil {
		return false, fmt.Errorf("wait until the request %s of %s is carried out: %w", ask, f.id, err)
	}
	return true, nil
}
