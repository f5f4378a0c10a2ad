package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

const deathJobs = `
group: test
name: hangs
stall_after: 3s
on_stall: cancel
run: [sh, -c, "echo begun; exec sleep 600"]
---
group: test
name: hangs_twice
stall_after: 3s
on_stall: retry
retry: {max_attempts: 2}
run: [sh, -c, "echo begun; exec sleep 600"]
---
group: test
name: shown
stall_after: 500ms
run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done; until test -e $JOBDIR_ARTIFACTS/on; do echo moves; sleep 0.02; done"]
---
group: test
name: dies_always
retry: {max_attempts: 99}
run: [sh, -c, "kill -SEGV $$"]
---
group: test
name: second_time
retry: {max_attempts: 2}
run: [sh, -c, "test $JOBDIR_RUN = 2 || kill -9 $$; echo done"]
`

// Stalled work is ended as its job configures: the operation is cancelled, or retried until its
// attempts are used up.
func TestStalledWorkIsEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, deathJobs, nil)
	cancelled, retried := b.submit("hangs", `{}`), b.submit("hangs_twice", `{}`)
	rec := b.awaitEnd(cancelled)
	if rec.Status != statefs.Cancelled || rec.Reason != "stalled" || rec.StalledAt != nil || rec.HeartbeatAt == nil {
		t.Errorf("status %s, reason %q, stalled %v, heartbeat %v", rec.Status, rec.Reason, rec.StalledAt, rec.HeartbeatAt)
	}
	b.wantLog(cancelled, "begun", "  Stalled: no output and no progress for 3s, stopping...")
	rec = b.awaitEnd(retried)
	if rec.Status != statefs.Failed || rec.Error.Code != "stalled" || rec.Run != 2 ||
		rec.Attempts != 2 || rec.Rescues != 1 {
		t.Errorf("status %s, error %+v, run %d, attempts %d, rescues %d", rec.Status, rec.Error, rec.Run,
			rec.Attempts, rec.Rescues)
	}
	b.wantLog(retried, "begun", "  Attempt 1 of 2 failed: no output and no progress for 3s. It is tried again.",
		"  Run 2 begins.", "begun",
		"  ERROR: no output and no progress for 3s")
}

// Without an action a stall is only shown while it lasts.
func TestStallIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t, deathJobs, nil)
	id := b.submit("shown", `{}`)
	stalled := func(want bool) func() bool {
		return func() bool {
			rec, err := b.tree.ReadRecord(id)
			return err == nil && (rec.StalledAt != nil) == want && rec.Status == statefs.Running
		}
	}
	b.await("it has stalled", stalled(true))
	b.artifact(id, "go")
	b.await("it moves again", stalled(false))
	b.artifact(id, "on")
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || rec.StalledAt != nil {
		t.Errorf("result %s, stalled %v", rec.Result, rec.StalledAt)
	}
}

func (b *bench) artifact(id statefs.ID, name string) {
	b.t.Helper()
	dir := b.daemon.owner.ArtifactsPath(id)
	must(b.t, os.MkdirAll(dir, 0o750)) // the record may say running before the folder exists
	must(b.t, os.WriteFile(filepath.Join(dir, name), nil, 0o640))
}

// Work that dies is retried while attempts remain, and waits for a person when its crash limit is
// reached.
func TestDeathsOfTheWork(t *testing.T) {
	t.Parallel()
	b := setup(t, deathJobs, nil)
	dying, mended := b.submit("dies_always", `{}`), b.submit("second_time", `{}`)
	b.awaitState(dying, statefs.FailedManual)
	b.await("the record says why", func() bool {
		rec, err := b.tree.ReadRecord(dying)
		return err == nil && rec.Status == statefs.FailedManual
	})
	rec, err := b.tree.ReadRecord(dying)
	if !strings.Contains(b.log(dying), "it died 5 times within 10m. Find out why, then 'jobdir retry ") {
		t.Errorf("log %s", b.log(dying))
	}
	if err != nil || rec.Reason != "crash_limit: it died 5 times within 10m" || rec.Run != 5 || len(rec.DiedAt) != 5 ||
		rec.Error == nil || rec.Error.Code != "signal" {
		t.Errorf("reason %q, run %d, deaths %v, error %+v, %v", rec.Reason, rec.Run, rec.DiedAt, rec.Error, err)
	}
	rec = b.awaitEnd(mended)
	if rec.Result != statefs.Success || rec.Run != 2 || rec.Error != nil || rec.Host == "" || rec.RequestHash == "" ||
		rec.Resources.OutputBytes == 0 {
		t.Errorf("result %s, run %d, error %+v, host %q, hash %q, %+v", rec.Result, rec.Run, rec.Error, rec.Host,
			rec.RequestHash, rec.Resources)
	}
}

// The crash limit counts deaths within its period, whatever the clock did in between.
func TestDeathsThatCount(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds ...int) (list []time.Time) {
		for _, s := range seconds {
			list = append(list, now.Add(time.Duration(s)*time.Second))
		}
		return list
	}
	limit := catalog.CrashLimit{Burst: 3, Within: time.Minute}
	for name, test := range map[string]struct{ before, want []time.Time }{
		"the first one":            {nil, at(0)},
		"those before":             {at(-60, -1), at(-60, -1, 0)},
		"too old":                  {at(-90, -61, -1), at(-1, 0)},
		"more than the limit":      {at(-4, -3, -2, -1), at(-2, -1, 0)},
		"the clock was set back":   {at(-1, 3600), at(-1, 0, 0)},
		"it has been set far back": {at(86400, 86401), at(0, 0, 0)},
	} {
		if got := addDeath(test.before, now, limit); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
