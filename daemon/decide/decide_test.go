package decide

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// What an operation does to which nothing happens follows from its state.
func TestUndisturbed(t *testing.T) {
	t.Parallel()
	want := map[statefs.State]Effect{statefs.Queued: TryStart, statefs.Trailing: Trail}
	for _, state := range statefs.LiveStates() {
		effect := FollowWork
		if want[state] != "" {
			effect = want[state]
		}
		if got := Decide(Snapshot{State: state}, Undisturbed{}, Env{}).Effect; got != effect {
			t.Errorf("%s: %s, want %s", state, got, effect)
		}
	}
	drained := Decide(Snapshot{State: statefs.Queued}, Undisturbed{}, Env{Draining: true})
	if drained.Effect != Wait || !drained.Last() {
		t.Errorf("queued while the daemon drains: %s, want %s as the last effect", drained.Effect, Wait)
	}
}

func TestAdmitted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   Snapshot
		want Effect
	}{
		{Snapshot{State: statefs.Queued}, Begin},
		{Snapshot{State: statefs.Queued, Working: true}, None},
		{Snapshot{State: statefs.Paused}, None},
	} {
		if got := Decide(c.of, Admitted{}, Env{}).Effect; got != c.want {
			t.Errorf("%+v: %s, want %s", c.of, got, c.want)
		}
	}
}
