package daemon

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// crashJobs runs [script] and gives up after a few crashes.
const crashJobs = `
group: test
name: crash_adopt
params: {script: {type: string, required: true}}
crash_limit: {burst: 3, within: 10m}
run: [sh, -c, "${params.script}"]
---
group: test
name: crash_retry
params: {script: {type: string, required: true}}
restart: retry
retry: {max_attempts: 2}
crash_limit: {within: 10m}
run: [sh, -c, "${params.script}"]
---
group: test
name: crash_handler
crash_limit: {burst: 2, within: 10m}
handler: wait
---
group: test
name: crash_side
params: {script: {type: string, required: true}}
crash_limit: {burst: 2, within: 10m}
steps:
  - {name: first, run: [sh, -c, "${params.script}"]}
  - {name: side, optional: true, run: [sh, -c, "echo side; test -e $JOBDIR_ARTIFACTS/cured || exec sleep 1000"]}
---
group: test
name: crash_once
params: {script: {type: string, required: true}}
crash_limit: {burst: 1}
run: [sh, -c, "${params.script}"]
---
group: test
name: crash_handler_once
crash_limit: {burst: 1}
handler: wait
---
group: test
name: crash_long
crash_limit: {burst: 2, within: 1s}
retry: {max_attempts: 4, initial: 1ms, factor: 100, cap: 24h, jitter: 0}
run: [sh, -c, "echo begins; sleep 1.2; kill -9 $$"]
---
group: test
name: crash_signal
retry: {max_attempts: 5}
run: [sh, -c, "kill -SEGV $$"]
`

// crash kills a daemon and the keepers that hold its commands, like a machine that loses power.
func (k *kept) crash(daemon *exec.Cmd) {
	k.t.Helper()
	keepers := k.keepers()
	k.kill(daemon)
	for _, pid := range keepers {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	k.poll("the keepers are gone", func() bool { return len(k.keepers()) == 0 })
}

// crashes starts a daemon and kills it with its keepers, the given number of times, each time after
// a run has written its line.
func (k *kept) crashes(id statefs.ID, line string, times int) {
	k.t.Helper()
	for range times {
		before := strings.Count(k.logNow(id), line)
		child := k.child()
		k.poll("the next run begins", func() bool { return strings.Count(k.logNow(id), line) > before })
		k.crash(child)
	}
}

// logNow returns the log of an operation, "" if there is none yet.
func (k *kept) logNow(id statefs.ID) string {
	k.t.Helper()
	if f, err := k.tree.OpenLog(id); err == nil {
		must(k.t, f.Close())
		return k.log(id)
	}
	return ""
}

func wantDeaths(t *testing.T, rec *statefs.Record, n int) {
	t.Helper()
	if len(rec.DiedAt) != n {
		t.Errorf("%d deaths in the record, want %d: %v", len(rec.DiedAt), n, rec.DiedAt)
	}
	for i, at := range rec.DiedAt {
		if at.Before(rec.CreatedAt) || at.After(time.Now()) || i > 0 && at.Before(rec.DiedAt[i-1]) {
			t.Errorf("the times of the deaths are %v", rec.DiedAt)
		}
	}
}

const beginsAndSleeps = "echo begins; test -e $JOBDIR_ARTIFACTS/cured || exec sleep 1000"

// Work whose daemon and keeper die again and again is left to a person, whose retry starts with a
// full budget.
func TestCrashLimitSurvivesRestarts(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+crashJobs)
	id := k.submit("crash_adopt", script(beginsAndSleeps))
	k.crashes(id, "begins\n", 3)
	k.start()
	rec := k.awaitRecord(id, statefs.FailedManual)
	if rec.Run != 3 || rec.Attempts != 0 || rec.Error == nil || rec.Error.Code != "cut_off" ||
		!strings.HasSuffix(rec.Error.Message, ": begins") || !strings.Contains(rec.Reason, "crash_limit") {
		t.Errorf("run %d, attempts %d, error %+v, reason %q", rec.Run, rec.Attempts, rec.Error, rec.Reason)
	}
	wantDeaths(t, rec, 3)
	k.touch(id, statefs.Retry)
	k.awaitState(id, statefs.Running)
	must(t, k.stop())
	must(t, k.pool.Close())
	k.crashes(id, "begins\n", 1)
	k.start()
	k.awaitState(id, statefs.Running)
	wantDeaths(t, k.awaitRecord(id, statefs.Running), 1)
	k.touch(id, statefs.Cancel)
	k.awaitEnd(id)
}

// With restart: retry, each interrupted run counts as an attempt.
func TestCrashesUseUpAttempts(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+crashJobs)
	id := k.submit("crash_retry", script(beginsAndSleeps))
	k.crashes(id, "begins\n", 2)
	k.start()
	rec := k.awaitRecord(id, statefs.Failed)
	if rec.Run != 2 || rec.Attempts != 2 || rec.Error == nil || rec.Error.Code != "cut_off" ||
		!strings.HasSuffix(rec.Error.Message, "attempts (2) are used up: begins") ||
		!strings.HasSuffix(rec.FailedAttempts[0].Message, "the machine stopped: begins") {
		t.Errorf("run %d, attempts %d, error %+v", rec.Run, rec.Attempts, rec.Error)
	}
	wantDeaths(t, rec, 2)
}

// A handler dies with its daemon, also if its start is not recorded yet.
func TestCrashLimitOfHandlers(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+crashJobs)
	id := k.submit("crash_handler", `{}`)
	for before := range 2 {
		child := k.child()
		k.poll("the next run begins", func() bool {
			rec, err := k.tree.ReadRecord(id) // the first run may be recorded by its marker only
			return err == nil && rec.Starts >= 2*before && k.exists(statefs.MarkerName(id, statefs.Running))
		})
		k.crash(child)
	}
	k.start()
	rec := k.awaitRecord(id, statefs.FailedManual)
	if rec.Run != 2 || rec.Attempts != 0 || !strings.Contains(rec.Reason, "crash_limit") {
		t.Errorf("run %d, attempts %d, reason %q", rec.Run, rec.Attempts, rec.Reason)
	}
	wantDeaths(t, rec, 2)
}

// A required step and an optional one have budgets of their own.
func TestCrashLimitOfSteps(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+crashJobs)
	id := k.submit("crash_side", script(beginsAndSleeps))
	for range 2 {
		before := strings.Count(k.logNow(id), "begins\n")
		child := k.child()
		k.poll("both steps run", func() bool {
			rec, err := k.tree.ReadRecord(id)
			side, _ := os.ReadFile(k.tree.StepLogPath(id, "side"))
			return err == nil && strings.Count(k.logNow(id), "begins\n") > before && rec.Steps[1].Status == "running" &&
				rec.Steps[1].Run > 2*before && strings.Count(string(side), "side\n") > before
		})
		k.crash(child)
	}
	k.start()
	rec := k.awaitRecord(id, statefs.FailedManual)
	wantDeaths(t, rec, 2)
	if side := rec.Steps[1]; side.Status != "failed_manual" || len(side.DiedAt) != 2 || side.ErrorCode != "cut_off" ||
		!strings.Contains(side.ErrorMessage, ": side; it died") {
		t.Errorf("the optional step: %+v", side)
	}
}

// A planned stop is no crash: of the daemon, of the keeper, or of both.
func TestPlannedStopsAreNoCrashes(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+crashJobs)
	command, handler := k.submit("crash_once", script("echo begins; test $JOBDIR_RUN -gt 2 || exec sleep 1000")),
		k.submit("crash_handler_once", `{}`)
	for round := range 2 {
		child := k.child()
		k.poll("both run", func() bool {
			return strings.Count(k.logNow(command), "begins\n") > round && k.exists(statefs.MarkerName(handler, statefs.Running))
		})
		keepers := k.keepers()
		must(t, child.Process.Signal(syscall.SIGTERM))
		must(t, child.Wait())
		for _, pid := range keepers {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
		k.poll("the keepers end", func() bool { return len(k.keepers()) == 0 })
	}
	k.start()
	rec := k.awaitRecord(command, statefs.Completed)
	if rec.Attempts != 1 {
		t.Errorf("attempts %d", rec.Attempts)
	}
	wantDeaths(t, rec, 0)
	k.awaitState(handler, statefs.Running)
	k.touch(handler, statefs.Cancel)
	wantDeaths(t, k.awaitEnd(handler), 0)
}

// After a run that lasted longer than the period of the limit, the budget is full and the back-off
// starts with its first wait again.
func TestLongRunsDoNotUseUpTheCrashLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, crashJobs, testHandlers)
	rec := b.awaitEnd(b.submit("crash_long", `{}`))
	if rec.Status != statefs.Failed || rec.Attempts != 4 || rec.Error.Code != "signal" {
		t.Errorf("status %s, attempts %d, error %+v", rec.Status, rec.Attempts, rec.Error)
	}
	wantDeaths(t, rec, 1)
}

// A signal that ends work while its daemon and keeper are alive also uses up attempts. If both
// limits are used up, the attempts decide.
func TestSignalsUseUpAttemptsFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, crashJobs, testHandlers)
	rec := b.awaitEnd(b.submit("crash_signal", `{}`))
	if rec.Status != statefs.Failed || rec.Attempts != 5 || rec.Error.Code != "signal" {
		t.Errorf("status %s, attempts %d, error %+v", rec.Status, rec.Attempts, rec.Error)
	}
}
