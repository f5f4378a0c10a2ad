package daemon

import "testing"

// TestAliveUntilTheEnd runs work whose last output is read after it has ended: the last heartbeat
// is not later than the end.
func TestAliveUntilTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, `
group: test
name: says
run: [sh, -c, 'echo "[ 1 / 1 ] the last words"']
`, nil)
	rec := b.awaitEnd(b.submit("says", `{}`))
	if rec.HeartbeatAt == nil || rec.FinishedAt == nil || rec.HeartbeatAt.After(*rec.FinishedAt) {
		t.Errorf("alive at %v, finished at %v", rec.HeartbeatAt, rec.FinishedAt)
	}
}
