package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// atStart is a handler that returns the record on disk as of its start, and ends when the test
// allows it.
type atStart struct {
	owner   chan *statefs.Tree
	records chan *statefs.Record
	release chan struct{}
}

func (a *atStart) handlers() work.Handlers {
	return work.Handlers{"hold": {Run: func(ctx context.Context, op *work.Op) error {
		tree := <-a.owner
		id, err := statefs.ParseID(op.ID())
		if err != nil {
			return err
		}
		rec, err := tree.ReadRecord(id)
		if err != nil {
			return err
		}
		a.records <- rec
		select {
		case <-a.release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}}
}

// The first run of a handler starts once its marker is durable. Its record follows if the run lasts
// longer than startRecordDelay. A later run is recorded before it starts. With a journal each start has its line first.
func TestTheRecordFollowsTheStartOfAHandler(t *testing.T) {
	t.Parallel()
	hold := &atStart{make(chan *statefs.Tree, 1), make(chan *statefs.Record), make(chan struct{})}
	b := prepare(t, "{group: test, name: hold, handler: hold, retry: {max_attempts: 2, initial: 1ms}}", hold.handlers())
	b.onFiles()
	b.start()
	hold.owner <- b.tree
	id := b.submit("hold", `{}`)
	if rec := <-hold.records; rec.Status != statefs.Queued || rec.Run != 0 ||
		!b.exists(statefs.MarkerName(id, statefs.Running)) {
		t.Errorf("at the start the record says %s, run %d; the marker says running: %t", rec.Status, rec.Run,
			b.exists(statefs.MarkerName(id, statefs.Running)))
	}
	b.await("the record says that it runs", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Status == statefs.Running && rec.Run == 1 && rec.Starts == 1 && rec.StartedAt != nil &&
			len(rec.Transitions) == 2
	})
	must(t, b.stop())
	hold.owner <- b.tree
	b.start()
	if rec := <-hold.records; rec.Status != statefs.Running || rec.Run != 2 || rec.Starts != 2 {
		t.Errorf("at the start of the second run the record says %s, run %d, %d starts", rec.Status, rec.Run, rec.Starts)
	}
	close(hold.release)
	if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Starts != 2 || rec.Attempts != 1 {
		t.Errorf("%s after %d starts and %d attempts", rec.Status, rec.Starts, rec.Attempts)
	}
}

// A request right after the start finds the start recorded before anything else happens.
func TestARequestRightAfterTheStart(t *testing.T) {
	t.Parallel()
	hold := &atStart{make(chan *statefs.Tree, 1), make(chan *statefs.Record), make(chan struct{})}
	b := setup(t, "{group: test, name: hold, handler: hold}", hold.handlers())
	hold.owner <- b.tree
	id := b.submit("hold", `{}`)
	<-hold.records
	must(t, os.Rename(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running)),
		filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Paused))))
	b.await("the record says that it is paused", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Status == statefs.Paused
	})
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	if n := len(rec.Transitions); n != 3 || rec.Transitions[1].Cause != statefs.CauseStart ||
		rec.Transitions[2].Cause != statefs.CausePause || rec.Run != 1 || rec.Starts != 1 {
		t.Errorf("run %d, %d starts, %+v", rec.Run, rec.Starts, rec.Transitions)
	}
	b.touch(id, statefs.Cancel)
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Starts != 1 {
		t.Errorf("%s after %d starts", rec.Status, rec.Starts)
	}
}
