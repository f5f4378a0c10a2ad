package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

const damagedJobs = `
group: test
name: holds
lane: one
handler: wait
---
group: test
name: prints
lane: one
params: {title: {type: string, default: none}}
run: [echo, "${params.title}"]
---
group: test
name: steps
lane: one
params: {title: {type: string, default: none}}
steps:
  - {name: first, run: [echo, "${params.title}"]}
  - {name: second, needs: [first], run: [echo, end]}
`

// recordDamages are the ways in which another program damages a record.
var recordDamages = map[string]func(t *testing.T, file string){
	"cut short": func(t *testing.T, file string) { t.Helper(); must(t, os.WriteFile(file, []byte("{"), 0o640)) },
	"removed":   func(t *testing.T, file string) { t.Helper(); must(t, os.Remove(file)) },
	"a fifo": func(t *testing.T, file string) {
		t.Helper()
		must(t, os.Remove(file))
		must(t, unix.Mkfifo(file, 0o640))
	},
	"a folder": func(t *testing.T, file string) {
		t.Helper()
		must(t, os.Remove(file))
		must(t, os.Mkdir(file, 0o750))
	},
}

func (b *bench) recordPath(id statefs.ID) string {
	return strings.TrimSuffix(b.tree.LogPath(id), ".log") + ".json"
}

// TestRetryAfterTheRecordWasDamaged: while the daemon runs it remembers the job and the parameters
// of a waiting operation, so the retry that it recommends works.
func TestRetryAfterTheRecordWasDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range recordDamages {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b := prepare(t, damagedJobs, testHandlers)
			b.config.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}
			b.start()
			first := b.submit("holds", `{}`)
			b.awaitState(first, statefs.Running)
			plain, staged := b.submit("prints", `{"title":"a title"}`), b.submit("steps", `{"title":"another"}`)
			for _, id := range []statefs.ID{plain, staged} {
				b.poll("it only waits", func() bool { op := b.daemon.operation(id); return op != nil && op.evicted.Load() })
				b.awaitFiles()
				damage(t, b.recordPath(id))
				b.touch(id, statefs.Pause) // any event triggers a reconcile
				b.awaitState(id, statefs.FailedManual)
				b.await("the new record", func() bool {
					rec, err := b.tree.ReadRecord(id)
					return err == nil && rec.Status == statefs.FailedManual && rec.Group == "test" && rec.Reason == "record unreadable"
				})
				rec, err := b.tree.ReadRecord(id)
				must(t, err)
				if help := statefs.AttentionOf(id, statefs.FailedManual, rec); !slices.Contains(help.Commands,
					"jobdir retry "+id.String()) {
					t.Errorf("the advice is %q", help.Commands)
				}
				b.touch(id, statefs.Retry)
				b.awaitState(id, statefs.Queued)
			}
			b.cancel(first)
			for id, title := range map[statefs.ID]string{plain: "a title\n", staged: "another\n"} {
				if rec := b.awaitEnd(id); rec.Status != statefs.Completed {
					t.Errorf("%s %+v", rec.Status, rec.Error)
				}
				if log := b.log(id); !strings.Contains(log, title) {
					t.Errorf("log %q, want %q in it", log, title)
				}
			}
		})
	}
}

// TestDamagedRecordKeepsPriorityDelayAndKey: the record that the daemon writes again has the
// priority, the earliest start and the idempotency key of the submit.
func TestDamagedRecordKeepsPriorityDelayAndKey(t *testing.T) {
	t.Parallel()
	b := prepare(t, damagedJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}
	b.start()
	first := b.submit("holds", `{}`)
	b.awaitState(first, statefs.Running)
	def := b.catalog.Get("test", "prints")
	past, future := time.Now().Add(-time.Hour).Truncate(time.Second), time.Now().Add(time.Hour).Truncate(time.Second)
	for want, params := range map[statefs.State]string{
		statefs.Queued: `{"title":"a title"}`, statefs.Scheduled: `{"title":"` + strings.Repeat("long ", 1000) + `"}`,
	} {
		at := past
		if want == statefs.Scheduled {
			at = future
		}
		bound, err := def.BindJSON([]byte(params))
		must(t, err)
		priority := 7
		s, err := submit.Build(def, bound, submit.Options{
			Priority: &priority, NotBefore: &at, IdempotencyKey: "a key of " + string(want),
		}, time.Now())
		must(t, err)
		submitted, err := publish(b.tree, s)
		must(t, err)
		id := submitted.ID
		b.awaitState(id, want)
		b.poll("it only waits", func() bool { op := b.daemon.operation(id); return op != nil && op.evicted.Load() })
		b.awaitFiles()
		recordDamages["cut short"](t, b.recordPath(id))
		b.touch(id, statefs.Pause) // any event triggers a reconcile
		b.awaitState(id, statefs.FailedManual)
		b.await("the new record", func() bool {
			rec, err := b.tree.ReadRecord(id)
			return err == nil && rec.Status == statefs.FailedManual
		})
		rec, err := b.tree.ReadRecord(id)
		must(t, err)
		if rec.Priority != 7 || rec.NotBefore == nil || !rec.NotBefore.Equal(at) || rec.IdempotencyKey != s.IdempotencyKey {
			t.Errorf("%s: priority %d, not before %v, key %q", want, rec.Priority, rec.NotBefore, rec.IdempotencyKey)
		}
	}
}

// TestOnlyCancelHelpsWithoutARecord: after a restart nothing is known of an operation whose record
// was damaged. The daemon reports that, refuses a retry by request and by rename, and accepts a
// cancel.
func TestOnlyCancelHelpsWithoutARecord(t *testing.T) {
	t.Parallel()
	b := prepare(t, damagedJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}
	id := b.submit("prints", `{}`)
	recordDamages["cut short"](t, b.recordPath(id))
	b.start()
	b.awaitState(id, statefs.FailedManual)
	b.await("the new record", func() bool { rec, err := b.tree.ReadRecord(id); return err == nil && rec.Lost() })
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	help := statefs.AttentionOf(id, statefs.FailedManual, rec)
	if want := []string{"jobdir cancel " + id.String()}; !slices.Equal(help.Commands, want) ||
		strings.Contains(help.Sentence(id), "retry") {
		t.Errorf("the advice is %q: %s", help.Commands, help.Sentence(id))
	}
	b.touch(id, statefs.Retry)
	b.awaitLog(id,
		"Retry refused: Operation '"+id.String()+"' is failed_manual and has no use for retry: its record was lost")
	b.mv(statefs.MarkerName(id, statefs.FailedManual), statefs.MarkerName(id, statefs.Queued))
	b.awaitState(id, statefs.FailedManual)
	b.cancel(id)
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("it ended as %s", rec.Status)
	}
}
