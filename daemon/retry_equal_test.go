package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// A retry of an operation that waits for a person has no effect while an equal operation is live,
// whether it is requested by a file or by a moved marker.
func TestRetryBesideAnEqualOne(t *testing.T) {
	t.Parallel()
	b := prepare(t, `
group: test
name: gated
exit_codes: {manual: [77]}
run: [sh, -c, 'test -e $JOBDIR_STORAGE/gate || exit 77; exec sleep 1000']
`, testHandlers)
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree})
	b.start()
	take := func() statefs.ID {
		t.Helper()
		made, err := b.config.Intake.Submit(t.Context(), submit.Request{Definition: b.catalog.Get("test", "gated")})
		must(t, err)
		return made[0].Record.ID
	}
	first := take()
	b.awaitState(first, statefs.FailedManual)
	must(t, os.WriteFile(filepath.Join(b.dir, "gate"), nil, 0o640))
	second := take()
	b.awaitState(second, statefs.Running)
	line := lineEqual(second)
	b.touch(first, statefs.Retry)
	b.awaitLog(first, line)
	must(t, os.Rename(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(first, statefs.FailedManual)),
		filepath.Join(b.tree.JobsDir(), statefs.MarkerName(first, statefs.Queued))))
	b.awaitLog(first, line+"\n"+line)
	b.awaitState(first, statefs.FailedManual)
	if rec, err := b.tree.ReadRecord(first); err != nil || rec.Starts != 1 {
		t.Errorf("it has started %d times, %v", rec.Starts, err)
	}
	b.touch(second, statefs.Cancel)
	b.awaitEnd(second)
	b.touch(first, statefs.Retry)
	b.awaitState(first, statefs.Running)
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
}
