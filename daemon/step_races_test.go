package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const raceJobs = `
group: test
name: left_out
steps:
  - {name: main, run: [echo, main]}
  - {name: extra, optional: true, needs: [main], when: "false", run: [echo, extra]}
  - {name: after, optional: true, needs: [extra], run: [echo, after]}
---
group: test
name: twice
steps:
  - {name: first, handler: ok, retry: {max_attempts: 2}}
  - {name: second, needs: [first], handler: second, retry: {max_attempts: 2, initial: 1ms}}
---
group: test
name: deaf_fails
steps:
  - {name: deaf, handler: deaf_fails}
  - {name: extra, optional: true, needs: [deaf], handler: ok}
---
group: test
name: deaf_last
steps:
  - {name: deaf, handler: deaf}
  - {name: extra, optional: true, needs: [deaf], handler: ok}
---
group: test
name: short
steps:
  - {name: a, run: ["true"]}
  - {name: b, needs: [a], run: ["true"]}
  - {name: c, needs: [b], run: ["true"]}
  - {name: long, needs: [c], run: [sleep, "1000"]}
`

// A step that needs an optional step runs even if that step is skipped by its condition.
func TestOptionalStepAfterOneThatIsLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, raceJobs, raceHandlers(nil, nil))
	if rec := b.awaitEnd(b.submit("left_out", `{}`)); rec.Result != statefs.Success ||
		statuses(rec) != "main=succeeded extra=skipped after=succeeded" {
		t.Errorf("%s: %s", rec.Result, statuses(rec))
	}
}

func raceHandlers(begun, let chan struct{}) work.Handlers {
	deaf := func(err error) work.Handler {
		return work.Handler{Run: func(_ context.Context, op *work.Op) error {
			if op.RunNumber() > 1 {
				return nil
			}
			close(begun)
			<-let // no checkpoint
			return err
		}}
	}
	return work.Handlers{
		"ok": {Run: func(context.Context, *work.Op) error { return nil }},
		"second": {Run: func(_ context.Context, op *work.Op) error {
			switch op.RunNumber() { // first is run 1, and again run 3
			case 2:
				return work.NeedsPerson(errors.New("not yet"))
			case 4:
				return work.RetryAfter(errors.New("busy"), 0)
			}
			return nil
		}},
		"deaf_fails": deaf(work.NeedsPerson(errors.New("no key"))),
		"deaf":       deaf(nil),
	}
}

// A step that begins again after a person went back has all of its attempts.
func TestAttemptsAfterGoingBack(t *testing.T) {
	t.Parallel()
	b := setup(t, raceJobs, raceHandlers(nil, nil))
	id := b.submit("twice", `{}`)
	b.record(id, statefs.FailedManual)
	b.request(id, statefs.Retry, `{"step": "first"}`)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || step(t, rec, "second").Run != 5 ||
		step(t, rec, "second").Retries != 2 {
		t.Errorf("%s %s: %+v", rec.Result, statuses(rec), rec.Error)
	}
}

// A pause that comes while a step fails has no effect, and does not delay later requests.
func TestPauseOfAStepThatFails(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	b := setup(t, raceJobs, raceHandlers(begun, let))
	id := b.submit("deaf_fails", `{}`)
	<-begun
	b.touch(id, statefs.Pause)
	b.awaitLog(id, "pausing")
	close(let)
	b.record(id, statefs.FailedManual)
	b.awaitLog(id, "Pause requested while failed_manual: nothing to do.")
	b.touch(id, statefs.Retry)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || statuses(rec) != "deaf=succeeded extra=succeeded" {
		t.Errorf("%s %s", rec.Result, statuses(rec))
	}
}

// A pause that comes while the last required step ends is too late, and does not delay the optional
// steps.
func TestPauseOfTheLastStep(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	b := setup(t, raceJobs, raceHandlers(begun, let))
	id := b.submit("deaf_last", `{}`)
	<-begun
	b.touch(id, statefs.Pause)
	b.awaitLog(id, "pausing")
	close(let)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || statuses(rec) != "deaf=succeeded extra=succeeded" {
		t.Errorf("%s %s", rec.Result, statuses(rec))
	}
}

// A cancel takes effect at any time, also between two steps.
func TestCancelBetweenSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, raceJobs, raceHandlers(nil, nil))
	var ids []statefs.ID
	for i := range 40 {
		id := b.submit("short", `{}`)
		ids = append(ids, id)
		if i%4 > 0 {
			name := []string{"a", "b", "c"}[i%4-1]
			b.await("step "+name+" has begun", func() bool {
				rec, err := b.tree.ReadRecord(id)
				return err == nil && step(t, rec, name).Status != steps.Pending
			})
		}
		b.touch(id, statefs.Cancel)
	}
	for _, id := range ids {
		rec := b.awaitEnd(id)
		if rec.Status != statefs.Cancelled {
			t.Errorf("%s: %s", rec.Status, statuses(rec))
		}
		for _, s := range rec.Steps {
			if s.Status == steps.Running {
				t.Errorf("it has ended, and %s is %s", s.Name, s.Status)
			}
		}
	}
}
