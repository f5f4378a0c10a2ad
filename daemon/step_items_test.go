package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const stepItemJobs = `
group: test
name: parts
steps:
  - {name: first, items: {range: [1, 2]}, run: [sh, -c, "echo first ${item}; test ${item} = 1"]}
  - name: second
    needs: [first]
    items: {range: [1, 3]}
    fail_when: any
    run: [sh, -c, "echo $JOBDIR_RUN ${item} >> $JOBDIR_ARTIFACTS/ledger; test ${item} != 2 || test -e $JOBDIR_ARTIFACTS/go"]
---
group: test
name: again
fail_when: any
items: {range: [1, 3]}
exit_codes: {retryable: [items_failed]}
retry: {max_attempts: 2}
run: [sh, -c, "echo $JOBDIR_RUN ${item} >> $JOBDIR_ARTIFACTS/ledger; test ${item} != 2 || test $JOBDIR_RUN = 2"]
`

func (b *bench) ledger(id statefs.ID) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.tree.ArtifactsPath(id), "ledger"))
	must(b.t, err)
	return strings.Join(strings.Split(strings.TrimSpace(string(data)), "\n"), ", ")
}

// A retried step repeats only the items that failed; a step to which a person goes back repeats all
// of them. Failed items of other steps are left alone.
func TestFailedItemsAreDoneAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, stepItemJobs, nil)
	id := b.submit("parts", `{}`)
	rec := b.record(id, statefs.FailedManual)
	if at := rec.CurrentStep(); at.Name != "second" || at.ErrorCode != "items_failed" || rec.Phase != "created" {
		t.Errorf("%s %+v", rec.Phase, at)
	}
	b.artifact(id, "go")
	b.request(id, statefs.Retry, `{}`)
	rec = b.awaitEnd(id)
	if got, want := b.ledger(id), "2 1, 2 2, 2 3, 3 2"; got != want {
		t.Errorf("done were %s, want %s", got, want)
	}
	if rec.Result != statefs.Partial || rec.Processed != 4 || rec.FailedN != 1 || step(t, rec, "second").Retries != 1 {
		t.Errorf("%s, %d processed, %d failed, %+v", rec.Result, rec.Processed, rec.FailedN, rec.Steps)
	}
}

func TestBackToAStepDoesAllItemsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, stepItemJobs, nil)
	id := b.submit("parts", `{}`)
	b.record(id, statefs.FailedManual)
	b.artifact(id, "go")
	b.request(id, statefs.Retry, `{"step":"first"}`)
	rec := b.awaitEnd(id)
	if got, want := b.ledger(id), "2 1, 2 2, 2 3, 4 1, 4 2, 4 3"; got != want {
		t.Errorf("done were %s, want %s", got, want)
	}
	if rec.Processed != 4 || rec.FailedN != 1 || step(t, rec, "first").Status != steps.Succeeded ||
		step(t, rec, "first").Run != 3 {
		t.Errorf("%d processed, %d failed, %+v", rec.Processed, rec.FailedN, rec.Steps)
	}
}

// The same holds for a job without steps whose failed items make the attempt fail.
func TestNextAttemptDoesFailedItemsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, stepItemJobs, nil)
	id := b.submit("again", `{}`)
	rec := b.awaitEnd(id)
	if got, want := b.ledger(id), "1 1, 1 2, 1 3, 2 2"; got != want {
		t.Errorf("done were %s, want %s", got, want)
	}
	if rec.Result != statefs.Success || rec.Processed != 3 || rec.FailedN != 0 {
		t.Errorf("%s, %d processed, %d failed", rec.Result, rec.Processed, rec.FailedN)
	}
}

// A request with unreadable content is refused: it may have named another step.
func TestRequestsThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	id := b.submit("fails", `{"how":"x"}`)
	b.record(id, statefs.FailedManual)
	put := func(ask statefs.Action, content string) {
		t.Helper()
		file := filepath.Join(b.dir, "tmp", "person")
		must(t, os.WriteFile(file, []byte(content), 0o600))
		must(t, os.Rename(file, filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, ask))))
	}
	for i, content := range []string{
		"{\"step\":\"first\",}", "please", "[\"first\"]",
		"{\"step\":\"first\",\"reason\":\"" + strings.Repeat("x", 3<<20) + "\"}",
	} {
		put(statefs.Skip, content)
		b.poll("it is refused", func() bool {
			return strings.Count(b.log(id),
				"Skip refused: its file has something in it") == i+1
		})
	}
	put(statefs.Skip, "{\"step\":\"second\",\n\"reason\":\"two lines\"}")
	if rec := b.awaitEnd(id); step(t, rec, "second").Reason != "two lines" {
		t.Errorf("%+v", rec.Steps)
	}
}

// A request that is written in several parts is taken when it is complete JSON, or has not changed
// for a quiet period.
func TestRequestsMayBeWrittenSlowly(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	id := b.submit("fails", `{"how":"x"}`)
	b.record(id, statefs.FailedManual)
	begun := filepath.Join(b.dir, "tmp", "person")
	f, err := os.Create(begun)
	must(t, err)
	_, err = f.WriteString(time.Now().Format(statefs.StampFormat) + "\n")
	must(t, err)
	ahead := time.Now().Add(30 * time.Minute) // so that it never looks settled before the next write
	must(t, os.Chtimes(begun, ahead, ahead))
	must(t, os.Rename(begun, filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Skip))))
	b.daemon.reconcileQueue.wait()
	_, err = f.WriteString(`{"step": "third", "reason": "later"}`)
	must(t, errors.Join(err, f.Close()))
	rec := b.awaitStep(id, "third", steps.Skipped)
	if rec.Status != statefs.FailedManual || step(t, rec, "third").Reason != "later" {
		t.Errorf("%s %+v", rec.Status, rec.Steps)
	}
	b.touch(id, statefs.Skip)
	if rec := b.awaitEnd(id); statuses(rec) != "first=succeeded second=skipped third=skipped" {
		t.Errorf("%s", statuses(rec))
	}
}
