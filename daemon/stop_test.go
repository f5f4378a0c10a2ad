package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// A stop for a person that a crash interrupted is in the feed once, however often the daemon
// starts.
func TestStopThatWasCutOffIsNumberedOnce(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	id := b.submit("wait", "{}")
	jobs := b.tree.JobsDir()
	must(t, os.Rename(filepath.Join(jobs, statefs.MarkerName(id, statefs.Queued)),
		filepath.Join(jobs, statefs.MarkerName(id, statefs.FailedManual))))
	var first uint64
	for start := range 3 {
		b.start()
		rows := b.awaitEnds(0, 1)
		if first = max(first, rows[0].Number); rows[0].Number != first || !rows[0].NeedsPerson {
			t.Errorf("start %d: %+v", start, rows)
		}
		b.await("the record says so", func() bool { return b.recordStatus(id) == statefs.FailedManual })
		b.daemon.reconcileQueue.wait()
		must(t, b.stop())
	}
}

// The record contains the outcome of an attempt, and the next state, before the marker is renamed.
func TestFailedAttemptIsWrittenBeforeTheRename(t *testing.T) {
	t.Parallel()
	for cause, want := range map[statefs.Cause]statefs.State{
		statefs.CauseNeedsPerson: statefs.FailedManual,
		statefs.CauseRescued:     statefs.Queued,
	} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			b := prepare(t, handlerJobs, testHandlers)
			id := b.submit("wait", "{}")
			d := b.unstarted()
			rec, err := b.tree.ReadRecord(id)
			must(t, err)
			rec.Attempts, rec.Reason = 3, "crash_limit"
			must(t, rec.Apply(statefs.Queued, statefs.CauseStart, time.Now()))
			op := &operation{ident: rec.ID, activeState: newActiveState(rec), state: statefs.Running}
			for range 2 { // the marker is still queued, so the rename fails
				if err := d.goOn(op, cause); !errors.Is(err, errMoved) {
					t.Fatal(err)
				}
			}
			rec, err = b.tree.ReadRecord(id)
			if err != nil || rec.Next != want || rec.Status != want || rec.Attempts != 3 ||
				rec.Reason != "crash_limit" || rec.Rescues > 1 {
				t.Errorf("%+v, %v", rec, err)
			}
			if number := rec.NeedsPersonSeq; (number != 0) != (want == statefs.FailedManual) || number > 1 {
				t.Errorf("number %d", number)
			}
		})
	}
}

// Removing a marker just before an attempt fails cancels the operation, as at any other time.
func TestMarkerRemovedBeforeAnAttemptFails(t *testing.T) {
	t.Parallel()
	due, removed := make(chan struct{}), make(chan struct{})
	b := setup(t, "{group: test, name: hang, handler: hang, timeout: 1ms, retry: {max_attempts: 9}}", work.Handlers{"hang": {
		Run: func(ctx context.Context, _ *work.Op) error {
			<-ctx.Done()
			close(due) // a second call would panic: the work must not begin again
			<-removed
			return context.Cause(ctx)
		},
	}})
	id := b.submit("hang", "{}")
	<-due
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running))))
	close(removed)
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("%s, %s", rec.Status, rec.Reason)
	}
}
