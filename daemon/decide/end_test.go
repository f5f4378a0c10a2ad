package decide

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

func TestEndResult(t *testing.T) {
	t.Parallel()
	const running, paused, queued = statefs.Running, statefs.Paused, statefs.Queued
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		from   statefs.State
		cause  statefs.Cause
		failed int
		status statefs.State
		result statefs.Result
	}{
		{"done", running, statefs.CauseDone, 0, statefs.Completed, statefs.Success},
		{"done, items failed", running, statefs.CauseDone, 1, statefs.Completed, statefs.Partial},
		{"failed", running, statefs.CauseFailed, 3, statefs.Failed, statefs.Failure},
		{"cancelled", paused, statefs.CauseCancel, 1, statefs.Cancelled, statefs.CancelledResult},
		{"its marker was removed", queued, statefs.CauseMarkerMissing, 0, statefs.Cancelled, statefs.CancelledResult},
		{"optional steps go on", running, statefs.CauseMainDone, 0, statefs.Completed, statefs.Success},
	} {
		rec := statefs.Record{Status: c.from, Next: paused, FinishedAt: &now, FailedN: c.failed}
		if err := End(&rec, c.from, c.cause, now); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if rec.Status != c.status || rec.Result != c.result || rec.Next != "" ||
			rec.Trailing != (c.cause == statefs.CauseMainDone) {
			t.Errorf("%s: %s, %s, %+v", c.name, rec.Status, rec.Result, rec)
		}
	}
	if err := End(&statefs.Record{}, statefs.WaitingApproval, statefs.CauseDone, now); err == nil {
		t.Error("an operation that waits for an approval is done")
	}
}

// A heartbeat that was read after the command had ended is not later than the end.
func TestEndHeartbeat(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	finished := now.Add(-time.Minute)
	for _, c := range []struct{ heartbeat, want time.Time }{
		{now, finished},
		{finished.Add(-time.Second), finished.Add(-time.Second)},
	} {
		rec := statefs.Record{FinishedAt: &finished, HeartbeatAt: &c.heartbeat}
		if err := End(&rec, statefs.Running, statefs.CauseDone, now); err != nil || !rec.HeartbeatAt.Equal(c.want) {
			t.Errorf("heartbeat at %v, want %v, %v", rec.HeartbeatAt, c.want, err)
		}
	}
}

// Steps that were to be tried again are cut off, unless the optional ones go on; the record before is not changed.
func TestEndSteps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	due := now.Add(time.Hour)
	list := func() []steps.Step {
		return []steps.Step{
			{Name: "main", Status: steps.FailedRetryable, DueAt: &due},
			{Name: "beside", Optional: true, Status: steps.FailedRetryable, DueAt: &due},
			{Name: "works", Optional: true, Status: steps.Running},
		}
	}
	ended := func(state statefs.State, cause statefs.Cause) func(*statefs.Record) error {
		return func(rec *statefs.Record) error { return End(rec, state, cause, now) }
	}
	allEnded := func(rec *statefs.Record) error { return EndTrailing(rec, statefs.CauseAllDone, now) }
	const pending, retry, running = steps.Pending, steps.FailedRetryable, steps.Running
	for _, c := range []struct {
		name   string
		end    func(*statefs.Record) error
		want   [3]steps.Status
		reason string
	}{
		{"cancelled", ended(statefs.FailedRetryable, statefs.CauseCancel), [3]steps.Status{pending, pending, running}, "why"},
		{"rejected", ended(statefs.WaitingApproval, statefs.CauseReject), [3]steps.Status{pending, pending, running}, ""},
		{"optional steps go on", ended(statefs.Running, statefs.CauseMainDone), [3]steps.Status{retry, retry, running}, "why"},
		{"the last one ended", allEnded, [3]steps.Status{retry, pending, pending}, "why"},
	} {
		before := list()
		rec := statefs.Record{Steps: before, Reason: "why", Trailing: true, FinishedAt: &now}
		if err := c.end(&rec); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, s := range rec.Steps {
			if s.Status != c.want[i] || (s.DueAt != nil) != (s.Status == retry) {
				t.Errorf("%s: step %s is %s, due %v, want %s", c.name, s.Name, s.Status, s.DueAt, c.want[i])
			}
			if before[i].Status != list()[i].Status {
				t.Errorf("%s: step %s was changed in the record before", c.name, s.Name)
			}
		}
		if rec.Reason != c.reason {
			t.Errorf("%s: reason %q", c.name, rec.Reason)
		}
	}
}
