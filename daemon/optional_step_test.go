package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const sideJobs = `
group: test
name: beside
steps:
  - {name: main, run: [sh, -c, "echo main"], milestone: done}
  - {name: slow, needs: [main], optional: true, run: [sh, -c, "echo slow; until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done; echo '{\"n\": 1}' > $JOBDIR_RESULT"], outputs: [n]}
  - {name: after_slow, needs: [slow], optional: true, run: [sh, -c, "echo got ${steps.slow.outputs.n}"]}
milestones: {all: [slow, after_slow]}
---
group: test
name: fails_beside
steps:
  - {name: broken, optional: true, run: [sh, -c, "echo broken; exit 78"]}
  - {name: never, needs: [broken], optional: true, run: [echo, never]}
  - {name: main, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done"]}
---
group: test
name: again_beside
steps:
  - {name: main, run: [echo, main]}
  - {name: flaky, optional: true, run: [sh, -c, "test -e $JOBDIR_ARTIFACTS/was && exit 0; touch $JOBDIR_ARTIFACTS/was; exit 75"], retry: {max_attempts: 3, initial: 20ms}}
---
group: test
name: handled_beside
steps:
  - {name: main, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done"]}
  - {name: aside, optional: true, handler: waits}
---
group: test
name: gate_beside
steps:
  - {name: main, run: [echo, main]}
  - {name: agree, needs: [main], approve: true}
  - {name: one, needs: [main], optional: true, run: [sh, -c, "test -e $JOBDIR_ARTIFACTS/was && exit 0; touch $JOBDIR_ARTIFACTS/was; exit 75"], retry: {max_attempts: 3, initial: 20ms}}
  - {name: two, needs: [one], optional: true, run: [echo, two]}
---
group: test
name: child
run: [echo, child]
`

var sideHandlers = work.Handlers{"waits": {Run: func(ctx context.Context, op *work.Op) error {
	op.Logf("waits")
	file, err := op.Artifact("where")
	if err != nil {
		return err
	}
	if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
		return err
	}
	for {
		if err := op.Sleep(5e6); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file.Name()), "on")); err == nil {
			return nil
		}
	}
}}}

func (b *bench) awaitStep(id statefs.ID, name string, status steps.Status) (rec *statefs.Record) {
	b.t.Helper()
	b.await("step "+name+" of "+id.String()+" is "+string(status), func() bool {
		r, err := b.tree.ReadRecord(id)
		rec = r
		if err != nil {
			return false
		}
		s := steps.Find(rec.Steps, name)
		return s != nil && s.Status == status
	})
	return rec
}

// The result of an operation is final when its required steps are done. The operation is trailing
// until the optional steps have ended, and is in the feed once.
func TestOptionalStepsFinishAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := prepare(t, sideJobs, sideHandlers)
	b.config.Retention = history.Retention{Bytes: 1}
	b.start()
	id := b.submit("beside", `{}`)
	b.awaitState(id, statefs.Trailing)
	rec := b.awaitStep(id, "slow", steps.Running)
	if rec.Status != statefs.Completed || !rec.Trailing || rec.Result != statefs.Success || rec.FinishedAt == nil ||
		rec.FinishedSeq == 0 || len(rec.Footer) == 0 {
		t.Errorf("record %+v", rec)
	}
	if end, err := b.tree.ReadDurableEnd(id); err != nil || end == nil {
		t.Errorf("its end: %v, %v", end, err)
	}
	if rows := b.awaitEnds(0, 1); len(rows) != 1 || rows[0].ID != id || rows[0].Status != statefs.Completed {
		t.Errorf("feed %+v", rows)
	}
	if ids := b.listed(history.Query{}); len(ids) != 1 {
		t.Errorf("listed as %v", ids)
	}
	if pruned, err := b.daemon.Prune(t.Context(), false); err != nil || len(pruned) > 0 {
		t.Errorf("pruned %v %v", pruned, err)
	}
	if err := b.daemon.Delete(t.Context(), id); err == nil || !strings.Contains(err.Error(), "trailing") {
		t.Errorf("deleted: %v", err)
	}
	child := b.after("child", statefs.RequireSuccess, id)
	b.awaitEnd(child) // does not wait for the optional steps
	footer, length := string(rec.Footer), *rec.LogBytes
	b.artifact(id, "go")
	rec = b.awaitEnd(id)
	if rec.Status != statefs.Completed || rec.Trailing ||
		statuses(rec) != "main=succeeded slow=succeeded after_slow=succeeded" || string(rec.Footer) != footer ||
		*rec.LogBytes != length {
		t.Errorf("%s %s", rec.Status, statuses(rec))
	}
	if len(b.awaitEnds(0, 2)) != 2 {
		t.Errorf("feed %+v", b.ends(0))
	}
	if rec.Phase != "all" || rec.Progress == nil || rec.Progress.Phase != "all" {
		t.Errorf("phase %q, progress %+v", rec.Phase, rec.Progress)
	}
	got, err := os.ReadFile(b.tree.StepLogPath(id, "after_slow"))
	if err != nil || string(got) != "got 1\n" {
		t.Errorf("its log %q %v", got, err)
	}
	if log := b.log(id); strings.Contains(log, "got 1") || strings.Contains(log, "\nslow\n") {
		t.Errorf("log %q", log)
	}
}

// A failed optional step delays nothing, and the steps that need it do not start.
func TestFailedOptionalStepBlocksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	id := b.submit("fails_beside", `{}`)
	rec := b.awaitStep(id, "broken", steps.FailedManual)
	if rec.Status != statefs.Running || step(t, rec, "broken").ErrorMessage != "exit code 78: broken" {
		t.Errorf("%s %+v", rec.Status, rec.Steps)
	}
	b.artifact(id, "go")
	b.awaitState(id, statefs.Trailing)
	var err error
	rec, err = b.tree.ReadRecord(id)
	must(t, err)
	if rec.Result != statefs.Success || rec.Error != nil ||
		statuses(rec) != "broken=failed_manual never=pending main=succeeded" {
		t.Errorf("%s %s", rec.Result, statuses(rec))
	}
	b.request(id, statefs.Cancel, "{}")
	if rec = b.awaitEnd(id); rec.Result != statefs.Success ||
		statuses(rec) != "broken=failed_manual never=pending main=succeeded" {
		t.Errorf("after a cancel: %s %s", rec.Result, statuses(rec))
	}
	again := b.submit("again_beside", `{}`)
	rec = b.awaitEnd(again)
	if s := step(t, rec, "flaky"); s.Status != steps.Succeeded || s.Retries != 1 || s.DueAt != nil {
		t.Errorf("%+v", s)
	}
}

// A trailing operation is cancelled by a request or by removing its marker, and stays completed. A
// cancel before that cancels all steps.
func TestCancelOfOptionalSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	asked, removed, whole := b.submit("beside", `{}`), b.submit("beside", `{}`), b.submit("handled_beside", `{}`)
	for _, id := range []statefs.ID{asked, removed} {
		b.awaitState(id, statefs.Trailing)
		b.awaitStep(id, "slow", steps.Running)
	}
	b.touch(asked, statefs.Cancel)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(removed, statefs.Trailing))))
	for _, id := range []statefs.ID{asked, removed} {
		b.poll("it is all done", func() bool {
			rec, err := b.tree.ReadRecord(id)
			return err == nil && !rec.Trailing
		})
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.Trailing {
			t.Errorf("%s %s %t", rec.Status, rec.Result, rec.Trailing)
		}
	}
	b.poll("the steps are cut off", func() bool {
		rec, err := b.tree.ReadRecord(removed)
		return err == nil && statuses(rec) == "main=succeeded slow=pending after_slow=pending"
	})
	b.awaitStep(whole, "aside", steps.Running)
	b.touch(whole, statefs.Cancel)
	if rec := b.awaitEnd(whole); rec.Status != statefs.Cancelled || statuses(rec) != "main=pending aside=pending" {
		t.Errorf("%s %s", rec.Status, statuses(rec))
	}
}

// A pause stops the optional steps together with the others.
func TestPauseStopsOptionalSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	id := b.submit("handled_beside", `{}`)
	b.awaitStep(id, "aside", steps.Running)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.artifact(id, "on")
	b.touch(id, statefs.Resume)
	b.awaitStep(id, "aside", steps.Succeeded)
	b.artifact(id, "go")
	if rec := b.awaitEnd(id); rec.Result != statefs.Success {
		t.Errorf("%s %+v", rec.Result, rec.Error)
	}
}

// A pause that comes while a step ends takes effect between two steps, and a resume starts the next
// one.
func TestPauseBetweenSteps(t *testing.T) {
	t.Parallel()
	jobs := `
group: test
name: two
steps:
  - {name: one, handler: one}
  - {name: two, needs: [one], run: [echo, two]}
`
	begun, let := make(chan struct{}), make(chan struct{})
	b := setup(t, jobs, work.Handlers{"one": {Run: func(_ context.Context, op *work.Op) error {
		close(begun)
		<-let // no checkpoint
		return nil
	}}})
	id := b.submit("two", `{}`)
	<-begun
	b.touch(id, statefs.Pause)
	b.awaitLog(id, "pausing")
	close(let)
	rec := b.record(id, statefs.Paused)
	if statuses(rec) != "one=succeeded two=pending" {
		t.Errorf("%s", statuses(rec))
	}
	must(t, b.stop())
	b.start()
	b.touch(id, statefs.Resume)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || statuses(rec) != "one=succeeded two=succeeded" ||
		step(t, rec, "one").Run != 1 {
		t.Errorf("%s %s", rec.Result, statuses(rec))
	}
}

// A trailing operation survives a stop of the daemon: handlers start again, the end is unchanged.
func TestTrailingSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	id := b.submit("handled_beside", `{}`)
	b.awaitStep(id, "aside", steps.Running)
	b.artifact(id, "go")
	b.awaitState(id, statefs.Trailing)
	before := b.awaitStep(id, "main", steps.Succeeded)
	if err := b.stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if rec, err := b.tree.ReadRecord(id); err != nil || step(t, rec, "aside").Status != steps.Pending {
		t.Errorf("%v %+v", err, rec.Steps)
	}
	b.start()
	b.awaitStep(id, "aside", steps.Running)
	b.artifact(id, "on")
	rec := b.awaitEnd(id)
	if s := step(t, rec, "aside"); s.Status != steps.Succeeded || s.Run != 3 || rec.FinishedSeq != before.FinishedSeq ||
		string(rec.Footer) != string(before.Footer) {
		t.Errorf("%+v, number %d, was %d", s, rec.FinishedSeq, before.FinishedSeq)
	}
	if rows := b.awaitEnds(0, 1); len(rows) != 1 {
		t.Errorf("feed %+v", rows)
	}
}

// Optional steps start, are retried and follow each other while their operation waits for a person.
func TestOptionalStepsGoOnAtAGate(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	id := b.submit("gate_beside", `{}`)
	b.record(id, statefs.WaitingApproval)
	rec := b.awaitStep(id, "two", steps.Succeeded)
	if rec.Status != statefs.WaitingApproval || step(t, rec, "one").Retries != 1 {
		t.Errorf("%s %+v", rec.Status, rec.Steps)
	}
	b.request(id, statefs.Approve, `{}`)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || rec.FinishedSeq == 0 {
		t.Errorf("%s %+v", rec.Result, rec.Steps)
	}
}
