package daemon

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// TestAMarkerMovedToAnotherOperationCancelsNeither renames the marker of one operation to names of another.
func TestAMarkerMovedToAnotherOperationCancelsNeither(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to      statefs.State
		other   statefs.State // of the other operation, "" when it has ended
		request statefs.Ask   // that brings it there
	}{
		"onto its marker":           {statefs.Running, statefs.Running, ""},
		"onto its paused marker":    {statefs.Paused, statefs.Paused, statefs.Pause},
		"beside its marker":         {statefs.Paused, statefs.Running, ""},
		"beside, as what it is not": {statefs.FailedManual, statefs.Running, ""},
		"to one that has ended":     {statefs.Running, "", statefs.Cancel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, handlerJobs, testHandlers)
			moved, other, third := b.submit("wait", `{}`), b.submit("wait", `{}`), b.submit("wait", `{}`)
			for _, id := range []statefs.ID{moved, other, third} {
				b.awaitState(id, statefs.Running)
			}
			if test.request != "" {
				b.touch(other, test.request)
			}
			if test.other == "" {
				b.awaitEnd(other)
			} else {
				b.awaitState(other, test.other)
			}
			b.daemon.looks.wait()
			before := b.log(other)
			marker := statefs.MarkerName(moved, statefs.Running)
			b.mv(marker, statefs.MarkerName(other, test.to))
			b.await("the marker is back", func() bool {
				stays := test.other == "" || b.exists(statefs.MarkerName(other, test.other))
				return b.exists(marker) && stays && (test.to == test.other || !b.exists(statefs.MarkerName(other, test.to)))
			})
			b.daemon.looks.wait()
			if b.log(moved) != "" || b.log(other) != before {
				t.Errorf("the logs are %q and %q", b.log(moved), b.log(other))
			}
			// Both are in hand as before: each knows its marker, also under another name.
			for _, id := range []statefs.ID{moved, other} {
				if id == other && test.other != statefs.Running {
					continue
				}
				b.mv(statefs.MarkerName(id, statefs.Running), "elsewhere")
				b.awaitState(id, statefs.Running)
				b.touch(id, statefs.Cancel)
				if rec := b.awaitEnd(id); rec.Transitions[len(rec.Transitions)-1].Cause != statefs.CauseCancel {
					t.Errorf("it ended by %v", rec.Transitions[len(rec.Transitions)-1])
				}
			}
		})
	}
}
