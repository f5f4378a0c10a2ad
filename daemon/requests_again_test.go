package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const busyJobs = `
group: test
name: busy
handler: busy
`

// busyHandlers return handlers that ignore pauses and their context until letGo delivers.
func busyHandlers(begun, letGo chan struct{}) work.Handlers {
	return work.Handlers{"busy": {Run: func(_ context.Context, op *work.Op) error {
		begun <- struct{}{}
		<-letGo
		return op.Sleep(time.Hour)
	}}}
}

// askAgain makes a request twice, the second time after the first is taken. It checks that the
// request stays in taken/ until it takes effect: after a crash it is nowhere else.
func askAgain(b *bench, id statefs.ID, ask statefs.Action) {
	b.t.Helper()
	inHand := filepath.Join(b.dir, "taken", statefs.RequestName(id, ask))
	var first os.FileInfo
	b.touch(id, ask)
	b.await("the request is in hand", func() (there bool) {
		var err error
		first, err = os.Lstat(inHand)
		return err == nil
	})
	b.touch(id, ask)
	b.await("the second one is in hand", func() bool { return !b.exists(statefs.RequestName(id, ask)) })
	b.daemon.reconcileQueue.wait()
	if second, err := os.Lstat(inHand); err != nil || os.SameFile(first, second) {
		b.t.Fatalf("%s is not kept while it waits for its effect: %v", filepath.Base(inHand), err)
	}
}

func (b *bench) nothingInHand() {
	b.t.Helper()
	b.daemon.reconcileQueue.wait()
	if left, err := os.ReadDir(filepath.Join(b.dir, "taken")); err != nil || len(left) != 0 {
		b.t.Errorf("requests left in taken/: %v %v", left, err)
	}
}

func TestPauseThatIsAskedAgainBeforeTheWorkStops(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, busyJobs, busyHandlers(begun, letGo))
	id := b.submit("busy", `{}`)
	<-begun
	askAgain(b, id, statefs.Pause)
	close(letGo)
	b.awaitState(id, statefs.Paused)
	b.nothingInHand()
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
}

func TestCancelThatIsAskedAgainBeforeTheWorkEnds(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, busyJobs, busyHandlers(begun, letGo))
	id := b.submit("busy", `{}`)
	<-begun
	askAgain(b, id, statefs.Cancel)
	close(letGo)
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("it ended as %s", rec.Status)
	}
	b.nothingInHand()
}

// A crash may leave a request whose effect is in the record already: the next daemon does not count it again.
func TestRequestThatIsLeftAfterItsEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	id := b.submit("fails", `{"how":"config"}`)
	b.record(id, statefs.FailedManual)
	const args = `{"values": {"params.how": "ok"}}`
	b.request(id, statefs.Set, args)
	var rec *statefs.Record
	b.await("the value is set", func() (is bool) {
		var err error
		rec, err = b.tree.ReadRecord(id)
		return err == nil && len(rec.ActionRecords) == 1
	})
	b.nothingInHand()
	must(t, b.stop())
	at := rec.ActionRecords[0].RequestedAt
	left := filepath.Join(b.dir, "taken", statefs.RequestName(id, statefs.Set))
	must(t, os.WriteFile(left, []byte(at.Format(statefs.StampFormat)+"\n"+args+"\n"), 0o600))
	must(t, os.Chtimes(left, at, at))
	b.start()
	b.await("the request is dropped", func() bool {
		left, err := os.ReadDir(filepath.Join(b.dir, "taken"))
		return err == nil && len(left) == 0 && !b.exists(statefs.RequestName(id, statefs.Set))
	})
	b.daemon.reconcileQueue.wait()
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	if len(rec.ActionRecords) != 1 {
		t.Errorf("it was counted again: %+v", rec.ActionRecords)
	}
}
