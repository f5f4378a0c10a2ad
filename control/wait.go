package control

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// awaiter lets clients wait for an operation.
type awaiter struct {
	view *viewer
	hub  *hub
	log  *slog.Logger
}

// awaitEndOrPerson waits until the operation has ended, waits for a person without a pending request, depends on an
// operation that waits for a person, or is in one of the given states. The error is the cause of ctx, or an error of
// reading the operation.
func (s *awaiter) awaitEndOrPerson(ctx context.Context, f *follower, or ...statefs.State) error {
	behind := ancestors{view: s.view, follower: f, others: make(map[statefs.ID]*follower)}
	defer behind.close()
	for {
		snap, err := f.Snapshot()
		if err != nil {
			return err
		}
		person := f.state.NeedsPerson() && !s.view.tree.UnblockRequested(f.id)
		if snap.Ended || person || slices.Contains(or, f.state) || behind.needPerson() {
			return nil
		}
		select {
		case <-f.Wake():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ancestors are the dependencies of a followed operation. Their changes wake its follower too.
type ancestors struct {
	view     *viewer
	follower *follower
	others   map[statefs.ID]*follower
}

// needPerson reports whether the followed operation cannot start until a person acts on a dependency.
func (a *ancestors) needPerson() bool {
	if a.follower.state != statefs.Queued || len(a.follower.after) == 0 {
		return false
	}
	person := a.view.blockingAncestor(a.follower.after, func(id statefs.ID) {
		if a.others[id] != nil {
			return
		}
		f := &follower{hub: a.follower.hub, id: id, wake: a.follower.wake, view: viewEnd}
		f.hub.subscribe(f)
		a.others[id] = f
	})
	return !person.IsZero()
}

func (a *ancestors) close() {
	for _, f := range a.others {
		f.close()
	}
}

// setRetryAfter sets Retry-After for an unfinished operation.
func (s *awaiter) setRetryAfter(w *front.Response, out api.Operation) {
	if !out.State.Live() || out.Record == nil {
		return
	}
	after := front.PollInterval(s.view.tree.Now().Sub(out.CreatedAt))
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
}

// afterWait waits until the operation has ended, waits for a person, or is in one of the given states, at most for wait
// or until the daemon stops, and returns it as it is then. The operation is accepted in any case, so errors are logged
// and the answer is submitted, unchanged.
func (s *awaiter) afterWait(r *front.Request, submitted api.Operation, wait time.Duration,
	or ...statefs.State,
) api.Operation {
	f := s.hub.follow(submitted.ID, viewEnd)
	defer f.close()
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	err := s.awaitEndOrPerson(ctx, f, or...)
	if err == nil && f.end != nil {
		return s.view.describeEnd(f.end)
	}
	if err == nil || ctx.Err() != nil {
		var found api.Operation
		if found, err = s.view.describe(submitted.ID); err == nil {
			return found
		}
	}
	s.log.Warn("waiting for an operation failed", "id", submitted.ID.String(), "error", err)
	return submitted
}
