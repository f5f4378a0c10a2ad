package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// However jobs/ is taken away, the next request is refused, the daemon stops without waiting for a
// sweep, and no operation is cancelled.
func TestDisplacedFolderStopsTheDaemon(t *testing.T) {
	t.Parallel()
	replace := func(t *testing.T, jobs string) {
		must(t, os.Rename(jobs, jobs+"-moved"))
		must(t, os.Mkdir(jobs, 0o750))
	}
	mountOver := func(t *testing.T, jobs string) { mountTmpfs(t, jobs, "1m") }
	submit := func(b *bench, _ statefs.ID) error {
		_, err := publish(b.tree, statefs.Submission{Group: "test", Job: "wait"})
		return err
	}
	request := func(b *bench, id statefs.ID) error { return b.tree.Request(b.t.Context(), id, statefs.Cancel, nil) }
	for name, test := range map[string]struct {
		take func(*testing.T, string)
		ask  func(*bench, statefs.ID) error
	}{
		"replaced, submit":      {replace, submit},
		"replaced, request":     {replace, request},
		"mounted over, submit":  {mountOver, submit},
		"mounted over, request": {mountOver, request},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, handlerJobs, testHandlers)
			id := b.submit("wait", `{}`)
			b.awaitState(id, statefs.Running)
			test.take(t, b.tree.JobsDir())
			if _, ok := errors.AsType[*statefs.JobsFolderReplacedError](test.ask(b, id)); !ok {
				t.Error("what was asked was acknowledged")
			}
			if b.daemon.Health().Ready {
				t.Error("the daemon says that it is ready")
			}
			err := <-b.ended
			b.daemon = nil
			if _, ok := errors.AsType[*watch.GoneError](err); !ok {
				t.Errorf("the daemon ended with %v", err)
			}
			if rec, err := b.tree.ReadRecord(id); err != nil || rec.Status.Terminal() {
				t.Errorf("record: %v, %v", rec, err)
			}
		})
	}
}

// A removed marker cancels its operation, even if the next operation's marker gets its inode
// number.
func TestRemovedMarkerWhoseInodeIsGivenAway(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	given := 0
	for range 8 {
		id := b.submit("wait", `{}`)
		b.awaitState(id, statefs.Running)
		b.daemon.reconcileQueue.wait()
		marker := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running))
		before, err := os.Lstat(marker)
		must(t, errors.Join(err, os.Remove(marker)))
		next := b.submit("wait", `{}`)
		b.awaitState(next, statefs.Running)
		after, err := os.Lstat(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(next, statefs.Running)))
		must(t, err)
		if os.SameFile(before, after) {
			given++
		}
		if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
			t.Errorf("it ended as %s", rec.Status)
		}
	}
	t.Logf("%d of 8 markers had the inode number of one that was removed", given)
}
