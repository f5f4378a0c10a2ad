package control

import (
	"context"
	"net/http"
	"os"
	"slices"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
)

// statsJSON is the answer of GET /api/v1/stats.
type statsJSON struct {
	tally.Stats
	// States counts each operation once, by status: live ones, and the ended ones that are kept. The latter are left
	// out while the index is being built.
	States map[statefs.State]int `json:"states"`
	// Outbox summarizes the pending deliveries.
	Outbox statefs.OutboxStatus `json:"outbox"`
}

// stats is GET /api/v1/stats.
func (s *figures) stats(w *front.Response, r *front.Request) error {
	if err := s.live.refuseAtStartup(); err != nil {
		return err
	}
	out := statsJSON{Stats: s.daemon.Stats(), Outbox: s.daemon.Outbox()}
	var err error
	if out.States, err = s.lists.countStates(r.Context()); err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, out)
}

// countStates counts the operations of this daemon by status, each exactly once at any moment.
func (s *lists) countStates(ctx context.Context) (map[statefs.State]int, error) {
	live, foreign, err := s.live.liveView(&history.Query{})
	if err != nil {
		return nil, err
	}
	live.Rows = slices.DeleteFunc(live.Rows, func(row history.Packed) bool {
		shown, err := row.Unpack()
		return err == nil && foreign[shown.ID] && shown.ID.PID() != os.Getpid()
	})
	return s.history.CountStates(ctx, live)
}

// countedStates are the states that the daemon counts from memory. Foreign operations can have markers that are running
// or paused, and only a listing finds those.
var countedStates = []statefs.State{
	statefs.Scheduled, statefs.Queued, statefs.WaitingApproval, statefs.FailedRetryable,
	statefs.FailedManual, statefs.Trailing,
}

// countOnly answers a list that only wants the number of operations in countedStates; false for any other list.
func (s *lists) countOnly(ctx context.Context, q *history.Query) (total int, ok bool, err error) {
	if !q.CountsStatuses() || slices.ContainsFunc(q.Statuses,
		func(state statefs.State) bool { return !slices.Contains(countedStates, state) }) {
		return 0, false, nil
	}
	states, err := s.countStates(ctx)
	for state, n := range states {
		if slices.Contains(q.Statuses, state) {
			total += n
		}
	}
	return total, err == nil, err
}
