package daemon

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The clock of a timeout is stopped while the work is paused.
func TestTimeoutCountsNoPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Int64
		var o timeout
		o.begin(time.Minute, time.Now(), func() { fired.Add(1) })
		defer o.end()
		pass := func(d time.Duration, times int64) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if fired.Load() != times {
				t.Fatalf("fired %d times, want %d", fired.Load(), times)
			}
		}
		pass(40*time.Second, 0)
		o.setPaused(true, time.Now())
		o.setPaused(true, time.Now())
		pass(time.Hour, 0)
		o.setPaused(false, time.Now())
		o.setPaused(false, time.Now())
		pass(19*time.Second, 0)
		pass(2*time.Second, 1)
		pass(time.Hour, 1)
	})
	var none timeout
	none.begin(0, time.Now(), nil)
	none.setPaused(true, time.Now())
	none.setPaused(false, time.Now())
	none.end()
}

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
