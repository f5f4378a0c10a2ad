package daemon

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

const timeoutJobs = `
group: test
name: slow
timeout: 300ms
grace: 100ms
retry: {max_attempts: 2}
run: [sh, -c, 'trap "" TERM; while :; do sleep 0.02; done']
---
group: test
name: paused
timeout: 8s
run: [sh, -c, 'until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done']
`

// Work that takes too long is ended like a cancelled one, even if it ignores SIGTERM, and each time
// counts as an attempt.
func TestTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, timeoutJobs, nil)
	id := b.submit("slow", `{}`)
	rec := b.awaitEnd(id)
	for range 20 { // on a busy machine the shell may be ended before it ignores SIGTERM
		if rec.Signal != "SIGTERM" {
			break
		}
		id = b.submit("slow", `{}`)
		rec = b.awaitEnd(id)
	}
	if rec.Status != statefs.Failed || rec.Error.Code != "timeout" || rec.Attempts != 2 || rec.Run != 2 ||
		rec.Signal != "SIGKILL" {
		t.Errorf("%s %+v, attempts %d, run %d, signal %q", rec.Status, rec.Error, rec.Attempts, rec.Run, rec.Signal)
	}
	b.wantLog(id, "  Attempt 1 of 2 failed: it took longer than the timeout of 300ms. It is tried again.",
		"  Run 2 begins.",
		"  ERROR: it took longer than the timeout of 300ms")
}

// A pause may last longer than the timeout.
func TestPauseBeyondTheTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, timeoutJobs, nil)
	id := b.submit("paused", `{}`)
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	<-time.After(8200 * time.Millisecond) // the time that must not count
	if !b.exists(statefs.MarkerName(id, statefs.Paused)) {
		t.Fatal("it did not stay paused")
	}
	b.artifact(id, "go")
	b.touch(id, statefs.Resume)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || rec.PausedSeconds < 8 {
		t.Errorf("result %s, %+v, paused for %v s", rec.Result, rec.Error, rec.PausedSeconds)
	}
}
