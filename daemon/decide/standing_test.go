package decide

import (
	"testing"

	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

func TestStanding(t *testing.T) {
	t.Parallel()
	const queued, running, paused, trailing = statefs.Queued, statefs.Running, statefs.Paused, statefs.Trailing
	const submit, priority, none = queue.BySubmit, queue.ByPriority, queue.AnyOrder
	for _, c := range []struct {
		name   string
		of     Snapshot
		now    Standing
		shares bool
		key    string
		order  queue.KeyOrder
		want   Standing
	}{
		{"running", Snapshot{State: running, Working: true}, Waiting, false, "", submit, Holding},
		{"queued, for a start", Snapshot{State: queued}, Waiting, false, "", submit, Waiting},
		{"admitted", Snapshot{State: queued}, Holding, false, "", submit, Holding},
		{"queued, for its parents", Snapshot{State: queued}, Outside, false, "", submit, Outside},
		{"queued, for its parents, with a key", Snapshot{State: queued}, Outside, false, "k", submit, KeepsTurn},
		{"queued, for its parents, in any order", Snapshot{State: queued}, KeepsTurn, false, "k", none, Outside},
		{"queued, for its parents, by priority", Snapshot{State: queued}, Outside, false, "k", priority, Outside},
		{"queued, it has just been submitted", Snapshot{State: queued}, Arriving, false, "k", priority, Outside},
		{"queued, and it has kept its turn", Snapshot{State: queued}, KeepsTurn, false, "k", priority, KeepsTurn},
		{"queued, its run is not over", Snapshot{State: queued, Working: true}, Outside, false, "", submit, Holding},
		{"paused with work", Snapshot{State: paused, Working: true}, Holding, false, "", submit, Holding},
		{"paused without work", Snapshot{State: paused}, Holding, false, "", submit, Outside},
		{"paused without work, with a key", Snapshot{State: paused}, Holding, false, "k", priority, KeepsTurn},
		{"trailing", Snapshot{State: trailing}, Holding, false, "k", submit, Outside},
		{"trailing, a step uses its places", Snapshot{State: trailing}, Outside, true, "", submit, Holding},
	} {
		if got := StandingOf(c.of, c.now, c.shares, c.key, c.order); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
