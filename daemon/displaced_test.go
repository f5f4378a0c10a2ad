package daemon

import (
	"os"
	"path/filepath"
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

// TestAMarkerRenamedWhileNoDaemonRan renames the marker of one operation to names that are none of its own.
func TestAMarkerRenamedWhileNoDaemonRan(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(other statefs.ID, moved statefs.ID) string{
		"onto the marker of another": func(other, _ statefs.ID) string { return statefs.MarkerName(other, statefs.Queued) },
		"to an unknown ending":       func(_, moved statefs.ID) string { return moved.String() + ".queued.bak" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, handlerJobs, testHandlers)
			moved, other, removed := b.submit("wait", `{}`), b.submit("wait", `{}`), b.submit("wait", `{}`)
			for _, id := range []statefs.ID{moved, other, removed} {
				b.awaitState(id, statefs.Running)
			}
			must(t, b.stop())
			b.mv(statefs.MarkerName(moved, statefs.Queued), to(other, moved))
			must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(removed, statefs.Queued))))
			b.start()
			b.awaitState(moved, statefs.Running)
			b.awaitState(other, statefs.Running)
			if rec := b.awaitEnd(removed); rec.Status != statefs.Cancelled {
				t.Errorf("the one whose marker was removed is %s", rec.Status)
			}
		})
	}
}
