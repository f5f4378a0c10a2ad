package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const retryJobs = `
group: test
name: plain
retry: {max_attempts: 3}
run: [sh, -c, "test $JOBDIR_RUN = 3 || exit 1; echo well"]
---
group: test
name: used_up
retry: {max_attempts: 2}
run: [sh, -c, "exit 64"]
---
group: test
name: person
retry: {max_attempts: 3}
run: [sh, -c, "exit 77"]
---
group: test
name: person_once
run: [sh, -c, "exit 78"]
---
group: test
name: once
run: [sh, -c, "exit 1"]
---
group: test
name: last
retry: {max_attempts: 3}
exit_codes: {final: [3]}
run: [sh, -c, "test $JOBDIR_RUN = 2 && exit 3; exit 77"]
---
group: test
name: shorthand
retry: {max_attempts: 2}
exit_codes: sysexits
run: [sh, -c, "test $JOBDIR_RUN = 2 || exit 65"]
---
group: test
name: bad_result
retry: {max_attempts: 2}
run: [sh, -c, "test $JOBDIR_RUN = 2 || echo no >$JOBDIR_RESULT"]
---
group: test
name: handled
retry: {max_attempts: 2}
handler: fails
---
group: test
name: handled_last
retry: {max_attempts: 2}
handler: last
---
group: test
name: steps
retry: {max_attempts: 2}
steps:
  - {name: again, run: [sh, -c, "test -e $JOBDIR_ARTIFACTS/once || { touch $JOBDIR_ARTIFACTS/once; exit 3; }"]}
  - {name: last, needs: [again], exit_codes: {final: [3]}, run: [sh, -c, "exit 3"]}
  - {name: beside, optional: true, retry: {max_attempts: 3}, run: [sh, -c, "exit 1"]}
`

// A job with retry retries every failure while attempts remain, unless its class forbids it.
// Exit codes 77 and 78 wait for a person.
func TestRetryRetries(t *testing.T) {
	t.Parallel()
	b := setup(t, retryJobs, work.Handlers{
		"fails": {Run: func(_ context.Context, op *work.Op) error {
			if op.RunNumber() == 2 {
				return nil
			}
			return errors.New("not yet")
		}},
		"last": {Run: func(context.Context, *work.Op) error {
			return &work.AttemptError{Err: errors.New("never"), Class: catalog.ClassFinal}
		}},
	})
	wants := map[string]struct {
		status        statefs.State
		run, attempts int
	}{
		"plain":        {statefs.Completed, 3, 3},
		"used_up":      {statefs.Failed, 2, 2},
		"person":       {statefs.FailedManual, 1, 1},
		"person_once":  {statefs.FailedManual, 1, 1},
		"once":         {statefs.Failed, 1, 1},
		"last":         {statefs.Failed, 2, 2},
		"shorthand":    {statefs.Completed, 2, 2},
		"bad_result":   {statefs.Completed, 2, 2},
		"handled":      {statefs.Completed, 2, 2},
		"handled_last": {statefs.Failed, 1, 1},
	}
	ids := make(map[string]statefs.ID)
	for job := range wants {
		ids[job] = b.submit(job, `{}`)
	}
	staged := b.submit("steps", `{}`)
	for job, want := range wants {
		rec := b.awaitRecord(ids[job], want.status)
		if rec.Run != want.run || rec.Attempts != want.attempts {
			t.Errorf("%s: run %d, attempts %d, want %d and %d; log %s", job, rec.Run, rec.Attempts, want.run,
				want.attempts, b.log(rec.ID))
		}
	}
	var rec *statefs.Record
	b.poll("all steps have ended", func() bool {
		var err error
		rec, err = b.tree.ReadRecord(staged)
		return err == nil && rec.Steps[0].Status == "succeeded" && rec.Steps[1].Status == "failed_manual" &&
			rec.Steps[2].Status == "failed_manual"
	})
	if again, last, beside := rec.Steps[0], rec.Steps[1], rec.Steps[2]; again.Retries != 1 || last.Retries != 0 ||
		beside.Retries != 2 {
		t.Errorf("retries %d, %d and %d", again.Retries, last.Retries, beside.Retries)
	}
}
