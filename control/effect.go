package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// undurable describes the effects that an answer reports although the daemon could not make them durable.
var undurable = map[statefs.Action]string{
	statefs.Pause: "it is paused", statefs.Resume: "it is resumed",
	statefs.Cancel: "its work has ended", statefs.ForceCancel: "its work has ended",
}

// sendActionReply answers a request that was made: at once, or when the daemon has its outcome or the wait is over.
func (s *actions) sendActionReply(w *front.Response, r *front.Request, waiter *effect.Waiter, out api.Answer,
	wait time.Duration,
) error {
	switch {
	case out.Changed != nil && !*out.Changed:
		return w.SendJSON(http.StatusOK, out)
	case wait == 0:
		return w.SendJSON(http.StatusAccepted, out)
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	var got effect.Outcome
	select {
	case got = <-waiter.C:
	case <-ctx.Done():
		carriedOut := waiter.SoFar().TookEffect // first: what follows may take a pause or resume back
		var err error
		if got.State, err = s.tree.State(out.ID); err != nil && !errors.Is(err, statefs.ErrNotLive) {
			return err
		}
		out.Pending = true
		if carriedOut && (out.Action.Cancels() || (out.Action == statefs.Pause) == (got.State == statefs.Paused)) {
			out.Pending, got.TookEffect, out.Durable = false, true, new(bool)
			out.Message += ": " + undurable[out.Action] + ", and the daemon could not make that durable yet"
		}
	}
	if out.State = got.State; got.TookEffect || !out.Foreign {
		out.TookEffect = &got.TookEffect
	}
	if out.State == "" && out.Foreign {
		out.Message += "; it has ended since"
	}
	if out.Pending {
		return w.SendJSON(http.StatusAccepted, out)
	}
	return w.SendJSON(http.StatusOK, out)
}
