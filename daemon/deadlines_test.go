package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const dueJobs = `
group: test
name: flaky
retry: {max_attempts: 3, initial: 30ms, factor: 2, jitter: 0}
exit_codes: sysexits
run: [sh, -c, "test $JOBDIR_RUN = 3 || exit 75; echo done"]
---
group: test
name: away
retry: {max_attempts: 3, initial: 10h, cap: 20h, jitter: 0.5}
exit_codes: {retryable: [1]}
run: [sh, -c, "test -e $JOBDIR_STORAGE/go"]
---
group: test
name: never
retry: {max_attempts: 2, initial: 1ms}
exit_codes: {retryable: [1]}
run: [sh, -c, "exit 1"]
---
group: test
name: short_time
retry: {max_attempts: 99, initial: 2h, retry_for: 1h}
exit_codes: {retryable: [1]}
run: [sh, -c, "exit 1"]
---
group: test
name: no_time
deadline: 1h
retry: {max_attempts: 99, initial: 2h}
exit_codes: {retryable: [1]}
run: [sh, -c, "exit 1"]
---
group: test
name: asks
retry: {max_attempts: 2}
run: [sh, -c, "echo '{\"retry_after\": \"3h\", \"seen\": true}' > $JOBDIR_RESULT; exit 9"]
---
group: test
name: asks_badly
retry: {max_attempts: 2}
run: [sh, -c, "echo '{\"retry_after\": \"soon\"}' > $JOBDIR_RESULT; exit 9"]
---
group: test
name: config
retry: {max_attempts: 9, initial: 1ms}
exit_codes: sysexits
run: [sh, -c, "test $JOBDIR_RUN = 2 || exit 78; echo mended"]
---
group: test
name: not_yet
retry: {initial: 1ms, max_attempts: 1}
exit_codes: {warn: [3]}
run: [sh, -c, "test $JOBDIR_RUN = 4 || exit 3; echo there"]
---
group: test
name: expires
deadline: 300ms
run: [sh, -c, "exec sleep 600"]
---
group: test
name: held
deadline: 300ms
handler: wait
---
group: test
name: quick
run: ["true"]
---
group: test
name: handled
retry: {max_attempts: 2}
handler: says
`

var dueHandlers = work.Handlers{"wait": {Run: waitHandler}, "says": {Run: func(context.Context, *work.Op) error { return nil }}}

// A failure of the class retryable is tried again when its wait is over, and the record contains
// that time.
func TestRetriesWithBackoff(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	flaky, never := b.submit("flaky", `{}`), b.submit("never", `{}`)
	rec := b.awaitEnd(flaky)
	if rec.Result != statefs.Success || rec.Attempts != 3 || rec.Rescues != 0 || rec.DueAt != nil || rec.Error != nil {
		t.Errorf("%s: attempts %d, rescues %d, due at %v, error %v", rec.Result, rec.Attempts, rec.Rescues,
			rec.DueAt, rec.Error)
	}
	want := `["submit","start","retry_later","due","start","retry_later","due","start","done"]`
	if got := causesOf(rec); got != want {
		t.Errorf("causes %s, want %s", got, want)
	}
	for i, tr := range rec.Transitions {
		if tr.Cause == statefs.CauseDue && tr.At.Sub(rec.Transitions[i-1].At) < 20*time.Millisecond {
			t.Errorf("it was due %s after it failed", tr.At.Sub(rec.Transitions[i-1].At))
		}
	}
	if log := b.log(flaky); !strings.Contains(log,
		"  Attempt 1 of 3 failed: exit code 75. It is tried again in 30ms, at ") ||
		!strings.Contains(log, "  Run 3 begins.\ndone\n") {
		t.Errorf("log:\n%s", log)
	}
	rec = b.awaitEnd(never)
	if rec.Status != statefs.Failed || rec.Attempts != 2 || rec.Error.Code != "exit_code" ||
		!strings.HasSuffix(b.log(never), "  ERROR: exit code 1\n") {
		t.Errorf("%s after %d attempts, %+v", rec.Status, rec.Attempts, rec.Error)
	}
}

func causesOf(rec *statefs.Record) string {
	var causes []statefs.Cause
	for _, tr := range rec.Transitions {
		causes = append(causes, tr.Cause)
	}
	text, _ := json.Marshal(causes)
	return string(text)
}

// record waits until the record of an operation agrees with its marker and returns it.
func (b *bench) record(id statefs.ID, state statefs.State) *statefs.Record {
	b.t.Helper()
	var rec *statefs.Record
	b.await(id.String()+" is on record as "+string(state), func() bool {
		r, err := b.tree.ReadRecord(id)
		rec = r
		return err == nil && r.Status == state && r.Next == "" && b.exists(statefs.MarkerName(id, state))
	})
	return rec
}

// The time of the next attempt is drawn once and survives a restart. A person may retry earlier, or
// pause the operation.
func TestNextAttemptIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	retried, moved, held, cancelled := b.submit("away", `{}`), b.submit("away", `{}`), b.submit("away", `{}`),
		b.submit("away", `{}`)
	before := make(map[statefs.ID]time.Time)
	for _, id := range []statefs.ID{retried, moved, held, cancelled} {
		rec := b.record(id, statefs.FailedRetryable)
		if rec.DueAt == nil || rec.DueAt.Sub(rec.Since()) < 4*time.Hour || rec.DueAt.Sub(rec.Since()) > 11*time.Hour ||
			rec.Error.Code != "exit_code" {
			t.Fatalf("due at %v since %s, %+v", rec.DueAt, rec.Since(), rec.Error)
		}
		before[id] = *rec.DueAt
	}
	if before[retried].Sub(before[moved]).Abs() < time.Millisecond &&
		before[held].Sub(before[moved]).Abs() < time.Millisecond {
		t.Error("three waits with jitter are over at the same time")
	}
	b.touch(held, statefs.Pause)
	b.record(held, statefs.Paused)
	must(t, b.stop())
	b.start()
	for id, due := range before {
		if rec, err := b.tree.ReadRecord(id); err != nil || !rec.DueAt.Equal(due) {
			t.Errorf("due at %v after a restart, want %s (%v)", rec.DueAt, due, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o640))
	b.touch(held, statefs.Resume)
	if rec := b.record(held, statefs.FailedRetryable); !rec.DueAt.Equal(before[held]) {
		t.Errorf("due at %v after it was held, want %s", rec.DueAt, before[held])
	}
	b.mv(statefs.MarkerName(held, statefs.FailedRetryable), statefs.MarkerName(held, statefs.Paused)) // a manual pause
	b.record(held, statefs.Paused)
	b.mv(statefs.MarkerName(held, statefs.Paused), statefs.MarkerName(held, statefs.Running)) // a manual resume
	if rec := b.record(held, statefs.FailedRetryable); !rec.DueAt.Equal(before[held]) {
		t.Errorf("due at %v after it was resumed by hand, want %s", rec.DueAt, before[held])
	}
	b.touch(retried, statefs.Retry)
	b.mv(statefs.MarkerName(moved, statefs.FailedRetryable), statefs.MarkerName(moved, statefs.Queued))
	b.touch(cancelled, statefs.Cancel)
	for id, want := range map[statefs.ID]statefs.State{
		retried: statefs.Completed, moved: statefs.Completed,
		cancelled: statefs.Cancelled,
	} {
		if rec := b.awaitEnd(id); rec.Status != want || rec.DueAt != nil {
			t.Errorf("%s, due at %v, want %s", rec.Status, rec.DueAt, want)
		}
	}
	b.touch(held, statefs.Cancel)
	b.awaitEnd(held)
}

// The clock is set while attempts wait. Set ahead, they are due. Set back, the daemon that measured
// the wait still waits as long as before.
func TestNextAttemptWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	id := b.submit("away", `{}`)
	b.record(id, statefs.FailedRetryable)
	must(t, os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o640))
	b.jump.Store(int64(-clockDay))
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	b.record(id, statefs.FailedRetryable)
	b.jump.Store(int64(clockDay))
	// a sweep checks the clock, as the clock watch does when the real clock is set
	_, err = b.daemon.Sweep(t.Context(), false)
	must(t, err)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success {
		t.Errorf("result %s", rec.Result)
	}
}

// No attempt starts after the time limit that the job sets.
func TestNoAttemptBeyondItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	for job, want := range map[string]string{
		"short_time": "  ERROR: exit code 1. It is not tried again: retry_for (1h) would be over by then.\n",
		"no_time":    "  ERROR: exit code 1. It is not tried again: its deadline (1h from the submit) would be over by then.\n",
	} {
		id := b.submit(job, `{}`)
		rec := b.awaitEnd(id)
		if rec.Status != statefs.Failed || rec.Attempts != 1 || rec.Error.Code != "exit_code" || b.log(id) != want {
			t.Errorf("%s: %s after %d attempts, %+v, log:\n%s", job, rec.Status, rec.Attempts, rec.Error, b.log(id))
		}
	}
}

// A command sets the time of its next attempt in its result. That member does not appear in the
// footer.
func TestCommandAsksForATime(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	id, badly := b.submit("asks", `{}`), b.submit("asks_badly", `{}`)
	rec := b.record(id, statefs.FailedRetryable)
	if wait := rec.DueAt.Sub(rec.Since()); wait < 3*time.Hour-time.Minute || wait > 3*time.Hour {
		t.Errorf("the next attempt is due in %s", wait)
	}
	b.touch(id, statefs.Retry)
	rec = b.awaitEnd(id)
	if rec.Status != statefs.Failed || rec.Attempts != 2 || !strings.Contains(string(rec.Footer), `"seen":true`) ||
		strings.Contains(string(rec.Footer), "retry_after") {
		t.Errorf("%s after %d attempts, footer %s", rec.Status, rec.Attempts, rec.Footer)
	}
	rec = b.awaitEnd(badly)
	if log := b.log(badly); rec.Status != statefs.Failed || rec.Attempts != 2 ||
		!strings.Contains(log,
			`  retry_after in the result is passed over: "soon" is neither seconds nor a duration such as 90s nor a time such as 20`) {
		t.Errorf("%s after %d attempts, log:\n%s", rec.Status, rec.Attempts, log)
	}
}

// A failure of the class manual waits for a person, logs how to continue, is in the feed, and uses
// no further attempt until then.
func TestManualExitCode(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	id := b.submit("config", `{}`)
	rec := b.record(id, statefs.FailedManual)
	if rec.Reason != "manual" || rec.Attempts != 1 || rec.Error.Code != "exit_code" || rec.NeedsPersonSeq == 0 ||
		*rec.ExitCode != 78 {
		t.Errorf("reason %q, %d attempts, %+v, number %d in the feed", rec.Reason, rec.Attempts,
			rec.Error, rec.NeedsPersonSeq)
	}
	b.wantLog(id,
		"  ERROR: exit code 78. A person must act: mend it, then 'jobdir retry "+id.String()+"', or 'jobdir cancel' it.")
	b.touch(id, statefs.Retry)
	if rec = b.awaitEnd(id); rec.Result != statefs.Success || rec.Reason != "" || rec.Attempts != 2 {
		t.Errorf("%s, reason %q, %d attempts", rec.Result, rec.Reason, rec.Attempts)
	}
}

// A failure of the class warn is neither a failure nor an attempt.
func TestWarnCountsAsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	id := b.submit("not_yet", `{}`)
	rec := b.awaitEnd(id)
	if rec.Result != statefs.Success || rec.Attempts != 1 || rec.Warnings != 3 || rec.Run != 4 {
		t.Errorf("%s after %d attempts, %d warnings, run %d", rec.Result, rec.Attempts, rec.Warnings, rec.Run)
	}
	if log := b.log(id); !strings.Contains(log,
		"  Run 1 came to nothing, which counts as no attempt: exit code 3. It is tried again in ") {
		t.Errorf("log:\n%s", log)
	}
}

// The error of a handler selects how its failure is handled.
func TestHandlerFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		state statefs.State
		code  string
	}{
		"plain":    {errors.New("no"), statefs.Failed, "handler_failed"},
		"later":    {work.RetryAfter(errors.New("busy"), time.Hour), statefs.FailedRetryable, "handler_failed"},
		"a person": {work.NeedsPerson(errors.New("log in")), statefs.FailedManual, "handler_failed"},
		"wrapped": {errors.Join(errors.New("x"), &work.AttemptError{
			Err: errors.New("busy"), Code: "rate_limited",
			RetryAfter: time.Hour,
		}), statefs.FailedRetryable, "rate_limited"},
		"warn": {
			&work.AttemptError{Err: errors.New("not there"), Class: catalog.ClassWarn},
			statefs.FailedRetryable, "handler_failed",
		},
		"code only": {&work.AttemptError{Err: errors.New("no"), Code: "odd"}, statefs.Failed, "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, dueJobs, work.Handlers{
				"wait": {Run: waitHandler},
				"says": {Run: func(context.Context, *work.Op) error { return test.err }},
			})
			id := b.submit("handled", `{}`)
			var rec *statefs.Record
			if test.state == statefs.Failed {
				rec = b.awaitEnd(id)
			} else {
				rec = b.record(id, test.state)
			}
			if rec.Status != test.state || rec.Error.Code != test.code {
				t.Errorf("%s, %+v; want %s, %s", rec.Status, rec.Error, test.state, test.code)
			}
		})
	}
}

// submitAt submits an operation that must not start before a time.
func (b *bench) submitAt(job string, at time.Time) statefs.ID {
	b.t.Helper()
	def := b.catalog.Get("test", job)
	rec, err := publish(b.tree, statefs.Submission{
		Group: def.Group, Job: def.Name, Definition: def.Source(), DefinitionHash: def.Hash(), NotBefore: &at,
	})
	must(b.t, err)
	return rec.ID
}

// An operation with a start time waits as scheduled, over a restart too. A person may pause it,
// start it at once, or cancel it.
func TestScheduledUntilItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	soon, past := b.submitAt("quick", time.Now().Add(200*time.Millisecond)),
		b.submitAt("quick", time.Now().Add(-time.Hour))
	for id, want := range map[statefs.ID]string{
		soon: `["submit","due","start","done"]`,
		past: `["submit","start","done"]`,
	} {
		if rec := b.awaitEnd(id); causesOf(rec) != want || rec.StartedAt.Before(*rec.NotBefore) || rec.DueAt != nil {
			t.Errorf("causes %s, want %s; not before %s, started at %s", causesOf(rec), want, rec.NotBefore, rec.StartedAt)
		}
	}
	far := time.Now().Add(5 * time.Hour)
	held, moved, cancelled, kept := b.submitAt("quick", far), b.submitAt("quick", far), b.submitAt("quick", far),
		b.submitAt("quick", far)
	for _, id := range []statefs.ID{held, moved, cancelled, kept} {
		b.awaitState(id, statefs.Scheduled)
	}
	b.touch(held, statefs.Pause)
	b.record(held, statefs.Paused)
	b.touch(held, statefs.Resume)
	if rec := b.record(held, statefs.Scheduled); !rec.DueAt.Equal(far) {
		t.Errorf("due at %v after it was held, want %s", rec.DueAt, far)
	}
	b.mv(statefs.MarkerName(moved, statefs.Scheduled), statefs.MarkerName(moved, statefs.Queued))
	b.touch(cancelled, statefs.Cancel)
	if rec := b.awaitEnd(moved); rec.Status != statefs.Completed {
		t.Errorf("moved into the queue by hand: %s", rec.Status)
	}
	if rec := b.awaitEnd(cancelled); rec.Status != statefs.Cancelled || rec.Starts != 0 {
		t.Errorf("cancelled: %s after %d starts", rec.Status, rec.Starts)
	}
	must(t, b.stop())
	b.mv(statefs.MarkerName(held, statefs.Scheduled), statefs.MarkerName(held, statefs.Paused))
	b.start()
	b.record(held, statefs.Paused)
	must(t, b.stop())
	b.mv(statefs.MarkerName(held, statefs.Paused), statefs.MarkerName(held, statefs.Running))
	b.start()
	b.record(held, statefs.Scheduled)
	b.awaitState(kept, statefs.Scheduled)
	must(t, b.stop())
	b.jump.Store(int64(6 * time.Hour))
	b.start()
	for _, id := range []statefs.ID{held, kept} {
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.StartedAt.Before(far) {
			t.Errorf("%s, started at %s, want after %s", rec.Status, rec.StartedAt, far)
		}
	}
}

// A deadline ends an operation in every state, also while it is scheduled for later.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs, dueHandlers)
	running, held, waiting := b.submit("expires", `{}`), b.submit("held", `{}`),
		b.submitAt("expires", time.Now().Add(time.Hour))
	b.touch(held, statefs.Pause) // the pause may come before or after the start
	for id, starts := range map[statefs.ID]int{running: 1, held: 1, waiting: 0} {
		rec := b.awaitEnd(id)
		if rec.Status != statefs.Failed || rec.Error.Code != "deadline_exceeded" || rec.Starts > starts {
			t.Errorf("%s, %+v, %d starts", rec.Status, rec.Error, rec.Starts)
		}
		if at := rec.FinishedAt.Sub(rec.CreatedAt); at < 300*time.Millisecond {
			t.Errorf("it ended after %s", at)
		}
		if log := b.log(id); !strings.Contains(log, "  ERROR: it has not ended within its deadline of 300ms\n") {
			t.Errorf("log:\n%s", log)
		}
	}
}

// A deadline that has passed when a daemon starts ends the operation then. Setting the clock ahead
// while the daemon runs ends nothing.
func TestDeadlineWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	b := setup(t, strings.ReplaceAll(dueJobs, "deadline: 300ms", "deadline: 1h"), dueHandlers)
	id, waiting := b.submit("expires", `{}`), b.submitAt("expires", time.Now().Add(10*clockDay))
	b.awaitState(id, statefs.Running)
	b.touch(waiting, statefs.Pause)
	b.record(waiting, statefs.Paused)
	b.touch(waiting, statefs.Resume)
	b.record(waiting, statefs.Scheduled) // the daemon tracks it
	b.jump.Store(int64(clockDay))
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	b.touch(id, statefs.Pause) // triggers a reconcile
	b.record(id, statefs.Paused)
	b.awaitState(waiting, statefs.Scheduled)
	must(t, b.stop())
	b.start()
	for _, id := range []statefs.ID{id, waiting} {
		if rec := b.awaitEnd(id); rec.Status != statefs.Failed || rec.Error.Code != "deadline_exceeded" {
			t.Errorf("%s, %+v", rec.Status, rec.Error)
		}
	}
}

// An operation that exceeds its queue_timeout ends without having started.
func TestQueueTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, "{group: test, name: late, queue_timeout: 100ms, run: [\"true\"]}", testHandlers)
	b.daemon.Drain() // nothing starts any more
	id := b.submit("late", `{}`)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Failed || rec.Error.Code != "queue_timeout" || rec.Starts != 0 ||
		causesOf(rec) != `["submit","expired"]` {
		t.Errorf("%s, %+v, %d starts, causes %s", rec.Status, rec.Error, rec.Starts, causesOf(rec))
	}
	b.wantLog(id, "  ERROR: it waited in the queue for longer than its queue_timeout of 100ms")
}

// The rest of a wait is never longer than the whole, whatever happened to the clock.
func TestRestOfAWait(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ whole, before, want time.Duration }{
		{time.Hour, time.Minute, time.Minute},
		{time.Hour, clockDay, time.Hour},
		{time.Hour, -clockDay, 0},
		{-time.Hour, time.Minute, 0},
		{time.Hour, 0, 0},
	} {
		if got := remainingWait(c.whole, until, until.Add(-c.before)); got != c.want {
			t.Errorf("%s before the end of a wait of %s: %s, want %s", c.before, c.whole, got, c.want)
		}
	}
}
