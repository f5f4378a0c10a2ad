package control

import (
	"errors"
	"net/http"
	"slices"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/tally"
)

// statsJSON is the answer of GET /api/v1/stats.
type statsJSON struct {
	tally.Stats
	// States counts by status: what lives, and what has ended and is kept. The latter is left out while the index is being built.
	States map[statefs.State]int `json:"states"`
	// Outbox is what is to be delivered.
	Outbox statefs.OutboxStatus `json:"outbox"`
}

// stats is GET /api/v1/stats.
func (s *Server) stats(w *answer, r *http.Request, _ httprouter.Params) error {
	if err := s.knowsAll(); err != nil {
		return err
	}
	out := statsJSON{Stats: s.status.Stats(), States: s.status.States(), Outbox: s.status.Outbox()}
	for _, state := range statefs.States() {
		if !state.Terminal() {
			continue
		}
		page, err := s.history.List(r.Context(), &history.Query{Statuses: []statefs.State{state}, Sort: history.ByCreated}, nil)
		if errors.Is(err, history.ErrNotReady) {
			break
		}
		if err != nil {
			return err
		}
		out.States[state] = page.Total
	}
	return s.sendJSON(w, r, http.StatusOK, out)
}

// counted are the states whose count the daemon answers from memory. Programs that it did not start keep markers of their own that are
// running or paused, and only a listing tells of those.
var counted = []statefs.State{
	statefs.Scheduled, statefs.Queued, statefs.WaitingApproval, statefs.FailedRetryable, statefs.FailedManual, statefs.Trailing,
}

// justCount answers a list that asks for nothing but how many are in some states, without a look at any operation; false when it asks for more.
func (s *Server) justCount(q *history.Query) (total int, ok bool, err error) {
	if !q.CountsStatuses() || slices.ContainsFunc(q.Statuses, func(state statefs.State) bool { return !slices.Contains(counted, state) }) {
		return 0, false, nil
	}
	// What was submitted and the daemon has not seen yet, so that a count that is asked for after a submit has it. It is taken before the count: what
	// is seen in between is in both at the worst, never in none.
	unseen := s.intake.Unseen()
	states := s.status.States()
	asked := make(map[statefs.State]bool)
	for _, state := range q.Statuses {
		if !asked[state] {
			total += states[state]
		}
		asked[state] = true
	}
	for _, id := range unseen {
		state, err := s.tree.State(id)
		switch {
		case errors.Is(err, statefs.ErrNotLive):
			s.intake.Vanished(id)
		case err != nil:
			return 0, false, err
		case asked[state] && !s.status.Has(id):
			total++
		}
	}
	return total, true, nil
}
