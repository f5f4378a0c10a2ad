package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

func TestAfterAFailedAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a    attempted
		want statefs.Cause
	}{
		"exit code, declared":        {attempted{code: "exit_code", class: catalog.ClassRetryable, attempts: 1, most: 3}, statefs.CauseRescued},
		"declared, none left":        {attempted{code: "exit_code", class: catalog.ClassRetryable, attempts: 3, most: 3}, statefs.CauseFailed},
		"for a person, at once":      {attempted{code: "exit_code", class: catalog.ClassManual, attempts: 1, most: 3}, statefs.CauseNeedsPerson},
		"for a person, none left":    {attempted{code: "timeout", class: catalog.ClassManual, attempts: 1, most: 1}, statefs.CauseNeedsPerson},
		"it asks for a time":         {attempted{code: "exit_code", asked: true, attempts: 1, most: 3}, statefs.CauseRescued},
		"it asks, none left":         {attempted{code: "exit_code", asked: true, attempts: 3, most: 3}, statefs.CauseFailed},
		"counts as none":             {attempted{code: "exit_code", class: catalog.ClassWarn, attempts: 9, most: 1}, statefs.CauseRescued},
		"counts as no death":         {attempted{code: "signal", class: catalog.ClassWarn, most: 1, deaths: 5}, statefs.CauseRescued},
		"deadline, attempts left":    {attempted{code: "deadline_exceeded", class: catalog.ClassWarn, asked: true, attempts: 1, most: 9}, statefs.CauseExpired},
		"exit code, attempts left":   {attempted{code: "exit_code", attempts: 1, most: 3}, statefs.CauseFailed},
		"log limit, attempts left":   {attempted{code: "log_limit", attempts: 1, most: 3}, statefs.CauseFailed},
		"killed, one attempt":        {attempted{code: "signal", attempts: 1, most: 1, deaths: 1}, statefs.CauseFailed},
		"killed, attempts left":      {attempted{code: "signal", attempts: 1, most: 3, deaths: 1}, statefs.CauseRescued},
		"killed, none left":          {attempted{code: "signal", attempts: 2, most: 2, deaths: 2}, statefs.CauseFailed},
		"third death in a row":       {attempted{code: "signal", attempts: 3, most: 9, deaths: 3}, statefs.CauseNeedsPerson},
		"keeper died thrice":         {attempted{code: "keeper_died", attempts: 3, most: 9, deaths: 3}, statefs.CauseNeedsPerson},
		"timed out, attempts left":   {attempted{code: "timeout", attempts: 1, most: 2}, statefs.CauseRescued},
		"stalled often is no poison": {attempted{code: "stalled", attempts: 5, most: 9, deaths: 3}, statefs.CauseRescued},
	} {
		if got := test.a.after(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

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
name: poison
retry: {max_attempts: 99}
run: [sh, -c, "kill -SEGV $$"]
---
group: test
name: second_time
retry: {max_attempts: 2}
run: [sh, -c, "test $JOBDIR_RUN = 2 || kill -9 $$; echo done"]
`

// Work that stalls is ended as its job wants: the operation is cancelled, or tried again until its attempts are used up.
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
	if rec.Status != statefs.Failed || rec.Error.Code != "stalled" || rec.Run != 2 || rec.Attempts != 2 || rec.Rescues != 1 {
		t.Errorf("status %s, error %+v, run %d, attempts %d, rescues %d", rec.Status, rec.Error, rec.Run, rec.Attempts, rec.Rescues)
	}
	b.wantLog(retried, "begun", "  Attempt 1 of 2 failed: no output and no progress for 3s. It is tried again.", "  Run 2 begins.", "begun",
		"  ERROR: no output and no progress for 3s")
}

// Without an action a stall is only shown, for as long as it lasts.
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
	must(b.t, os.MkdirAll(dir, 0o750)) // the record may say that it runs a moment before the folder is there
	must(b.t, os.WriteFile(filepath.Join(dir, name), nil, 0o640))
}

// Work that dies is tried again while attempts remain, and is kept for a person when it dies again and again without having
// finished anything.
func TestDeathsOfTheWork(t *testing.T) {
	t.Parallel()
	b := setup(t, deathJobs, nil)
	poisoned, mended := b.submit("poison", `{}`), b.submit("second_time", `{}`)
	b.awaitState(poisoned, statefs.FailedManual)
	b.await("the record says why", func() bool {
		rec, err := b.tree.ReadRecord(poisoned)
		return err == nil && rec.Status == statefs.FailedManual
	})
	rec, err := b.tree.ReadRecord(poisoned)
	if err != nil || rec.Reason != "poison" || rec.Run != 3 || rec.Deaths != 3 || rec.Error == nil || rec.Error.Code != "signal" {
		t.Errorf("reason %q, run %d, deaths %d, error %+v, %v", rec.Reason, rec.Run, rec.Deaths, rec.Error, err)
	}
	rec = b.awaitEnd(mended)
	if rec.Result != statefs.Success || rec.Run != 2 || rec.Error != nil || rec.Host == "" || rec.RequestHash == "" || rec.Resources.OutputBytes == 0 {
		t.Errorf("result %s, run %d, error %+v, host %q, hash %q, %+v", rec.Result, rec.Run, rec.Error, rec.Host, rec.RequestHash, rec.Resources)
	}
}
