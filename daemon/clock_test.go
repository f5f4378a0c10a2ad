package daemon

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

const clockDay = 24 * time.Hour

// clockJumps returns by how much tests set the clock.
func clockJumps() map[string]time.Duration {
	return map[string]time.Duration{
		"ahead by a day": clockDay,
		"back by a day":  -clockDay,
		"past 2038":      time.Until(time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC)) + clockDay,
		"to 1970":        time.Until(time.Unix(100_000, 0)),
	}
}

const clockJobs = `
group: test
name: limited
timeout: 1h
stall_after: 1h
on_stall: cancel
run: [sh, -c, "exec sleep 600"]
---
group: test
name: handled
timeout: 1h
stall_after: 1h
on_stall: cancel
handler: wait
---
group: test
name: dies
retry: {max_attempts: 99}
run: [sh, -c, "kill -SEGV $$"]
`

// The clock is set while work runs, is paused, and waits for a person. Nothing times out or stalls,
// requests (a retry too) take effect, sequence numbers do not repeat, and the next daemon continues
// everything.
func TestDaemonWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, by := range clockJumps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, clockJobs, testHandlers)
			command, handler, dead := b.submit("limited", "{}"), b.submit("handled", "{}"), b.submit("dies", "{}")
			b.awaitState(command, statefs.Running)
			b.awaitState(handler, statefs.Running)
			b.awaitState(dead, statefs.FailedManual)
			b.touch(handler, statefs.Pause)
			b.awaitState(handler, statefs.Paused)
			b.jump.Store(int64(by))
			b.ask(handler, statefs.Resume)
			b.awaitState(handler, statefs.Running)
			b.ask(command, statefs.Pause)
			b.awaitState(command, statefs.Paused)
			b.ask(dead, statefs.Retry)
			b.await("it has been tried again", func() bool {
				rec, err := b.tree.ReadRecord(dead)
				return err == nil && rec.Run > 3 && b.exists(statefs.MarkerName(dead, statefs.FailedManual))
			})
			must(t, b.stop())
			b.jump.Store(0) // the clock is correct again for the next daemon
			b.start()
			b.awaitState(command, statefs.Paused)
			b.awaitState(handler, statefs.Running)
			later := b.submit("handled", "{}")
			b.awaitState(later, statefs.Running)
			var last uint64
			for _, id := range []statefs.ID{command, handler, dead, later} {
				b.ask(id, statefs.Cancel)
				rec := b.awaitEnd(id)
				if rec.Status != statefs.Cancelled || rec.Reason != "" && id != dead || rec.FinishedSeq <= last ||
					rec.PausedSeconds < 0 || rec.ActiveTime(b.now()) < 0 {
					t.Errorf("%s: %s %q, end %d after %d, paused for %v s", id, rec.Status, rec.Reason, rec.FinishedSeq,
						last, rec.PausedSeconds)
				}
				last = rec.FinishedSeq
			}
			if later.Sequence() <= dead.Sequence() {
				t.Errorf("%s comes after %s", later, dead)
			}
		})
	}
}

// ask makes a request as the HTTP endpoint does.
func (b *bench) ask(id statefs.ID, ask statefs.Action) {
	b.t.Helper()
	must(b.t, b.tree.Request(b.t.Context(), id, ask, nil))
}

// An operation whose end a daemon has seen still exists when the clock is correct again, wherever
// the clock was set in between.
func TestRetentionWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, by := range clockJumps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t, handlerJobs, testHandlers)
			b.config.Retention = history.Retention{Age: time.Hour, FailedAge: time.Hour}
			b.start()
			before := b.submit("count", "{}")
			b.awaitEnd(before)
			b.awaitEnds(0, 1)
			_, err := b.daemon.Prune(t.Context(), false) // a prune reads the clock
			must(t, err)
			b.jump.Store(int64(by))
			after := b.submit("count", "{}")
			b.awaitEnd(after)
			b.awaitEnds(0, 2)
			for _, at := range []time.Duration{by, by, 0} {
				b.jump.Store(int64(at))
				pruned, err := b.daemon.Prune(t.Context(), false)
				must(t, err)
				if len(pruned) > 0 {
					t.Errorf("%+v were deleted while the clock was off by %s", pruned, at)
				}
			}
		})
	}
}
