package daemon

import (
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

const itemRetryJobs = `
group: test
name: partly
items: {range: [1, 4]}
retry: {max_attempts: 3}
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; case ${item} in 2) test $JOBDIR_RUN -gt 1 ;; 3) exit 5 ;; esac"]
---
group: test
name: beside
parallel: 4
items: {range: [1, 4]}
retry: {max_attempts: 3}
fail_when: all
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2 || test $JOBDIR_RUN -gt 1"]
---
group: test
name: any
items: {range: [1, 4]}
retry: {max_attempts: 2}
fail_when: any
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]
---
group: test
name: last
items: {range: [1, 2]}
retry: {max_attempts: 3}
exit_codes: {final: [items_failed]}
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]
---
group: test
name: no_time
items: {range: [1, 2]}
retry: {initial: 2h, retry_for: 1h}
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]
---
group: test
name: without
items: {range: [1, 2]}
run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]
---
group: test
name: staged
steps:
  - {name: each, items: {range: [1, 3]}, retry: {max_attempts: 2}, run: [sh, -c, "echo $JOBDIR_RUN ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]}
  - {name: after, needs: [each], run: [sh, -c, "echo after >>$JOBDIR_ARTIFACTS/ledger"]}
---
group: test
name: optional
steps:
  - {name: main, run: [sh, -c, "true"]}
  - {name: each, optional: true, items: {range: [1, 3]}, retry: {max_attempts: 2}, run: [sh, -c, "echo ${item} >>$JOBDIR_ARTIFACTS/ledger; test ${item} != 2"]}
`

// With retry the failed items, and no others, are done again while attempts remain. Then fail_when
// determines the result.
func TestRetryDoesFailedItemsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, itemRetryJobs, nil)
	wants := map[string]struct {
		result                      statefs.Result
		attempts, processed, failed int
		ledger                      string
	}{
		"partly":   {statefs.Partial, 3, 3, 1, "1 1, 1 2, 1 3, 1 4, 2 2, 2 3, 3 3"},
		"beside":   {statefs.Success, 2, 4, 0, ""},
		"any":      {statefs.Failure, 2, 3, 1, "1 1, 1 2, 1 3, 1 4, 2 2"},
		"last":     {statefs.Partial, 1, 1, 1, "1 1, 1 2"},
		"no_time":  {statefs.Partial, 1, 1, 1, "1 1, 1 2"},
		"without":  {statefs.Partial, 1, 1, 1, "1 1, 1 2"},
		"staged":   {statefs.Partial, 0, 2, 1, "1 1, 1 2, 1 3, 2 2, after"},
		"optional": {statefs.Partial, 0, 2, 1, "1, 2, 3, 2"},
	}
	ids := make(map[string]statefs.ID)
	for job := range wants {
		ids[job] = b.submit(job, `{}`)
	}
	for job, want := range wants {
		id := ids[job]
		rec := b.awaitEnd(id)
		if rec.Result != want.result && job != "optional" {
			t.Errorf("%s: result %s, want %s; log %s", job, rec.Result, want.result, b.log(id))
		}
		if want.attempts > 0 && rec.Attempts != want.attempts {
			t.Errorf("%s: %d attempts, want %d; log %s", job, rec.Attempts, want.attempts, b.log(id))
		}
		if job != "optional" && (rec.Processed != want.processed || rec.FailedN != want.failed) {
			t.Errorf("%s: %d processed, %d failed", job, rec.Processed, rec.FailedN)
		}
		if want.ledger != "" && b.ledger(id) != want.ledger {
			t.Errorf("%s: done were %s, want %s", job, b.ledger(id), want.ledger)
		}
		if (rec.Error != nil) != (rec.Result == statefs.Failure) {
			t.Errorf("%s: error %+v", job, rec.Error)
		}
	}
	if log := b.log(ids["partly"]); !strings.Contains(log, "Attempt 1 of 3 failed: 2 of 4 items failed") ||
		!strings.Contains(log, "Goes on after 2 finished items.") {
		t.Errorf("log %s", log)
	}
	if rec := b.awaitEnd(ids["optional"]); rec.Steps[1].Status != "succeeded" || rec.Steps[1].Retries != 1 {
		t.Errorf("%+v", rec.Steps[1])
	}
	first := ids["any"]
	submitted, err := publish(b.tree, statefs.Submission{
		Group: "test", Job: "any", RetryOf: &first, FailedItems: true, Definition: b.catalog.Get("test", "any").Source(),
	})
	must(t, err)
	again := b.awaitEnd(submitted.ID)
	if again.Run != 2 || again.Processed != 3 || again.FailedN != 1 || b.ledger(again.ID) != "1 2, 2 2" {
		t.Errorf("run %d, %d processed, %d failed, done were %s", again.Run, again.Processed,
			again.FailedN, b.ledger(again.ID))
	}
}
