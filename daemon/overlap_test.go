package daemon

import (
	"context"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const (
	queues  = `{group: test, name: queues, schedule: {cron: "* * * * * *", overlap: queue}, handler: hold}`
	cancels = `{group: test, name: cancels, schedule: {cron: "* * * * * *", overlap: cancel_previous}, handler: hold}`
)

// holding has handlers that end when the test releases them, or when they are cancelled.
type holding struct {
	began   chan string
	release chan struct{}
}

func (h *holding) handlers() work.Handlers {
	return work.Handlers{"hold": {Run: func(ctx context.Context, op *work.Op) error {
		select {
		case h.began <- op.ID():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-h.release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}}
}

func (h *holding) next(b *bench) statefs.ID {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	select {
	case text := <-h.began:
		id, err := statefs.ParseID(text)
		must(b.t, err)
		return id
	case <-ctx.Done():
		b.t.Fatal("nothing begins")
		return statefs.ID{}
	}
}

// follows returns the operation that a slot created for the time after another one.
func (b *bench) follows(job string, first statefs.ID) (second *statefs.Record) {
	b.t.Helper()
	b.await("a slot comes while "+first.String()+" runs", func() bool {
		for _, rec := range b.started(job) {
			if len(rec.After) == 1 && rec.After[0] == first {
				second = rec
			}
		}
		return second != nil
	})
	if second.Require != statefs.RequireEnd {
		b.t.Errorf("%s requires %q of the one before", second.ID, second.Require)
	}
	return second
}

// A schedule with overlap queue: a slot waits until the work of the previous slot has ended.
func TestASlotWaitsForTheWorkBeforeIt(t *testing.T) {
	t.Parallel()
	hold := &holding{make(chan string), make(chan struct{})}
	b := setup(t, queues, hold.handlers())
	first := hold.next(b)
	second := b.follows("queues", first)
	third := b.follows("queues", second.ID)
	if why := b.awaitWaiting(second.ID, statefs.WaitsForOthers); why.HeldBy != first {
		t.Errorf("the second waits %+v, want for %s", why, first)
	}
	if why := b.awaitWaiting(third.ID, statefs.WaitsForOthers); why.HeldBy != second.ID {
		t.Errorf("the third waits %+v, want for %s", why, second.ID)
	}
	if !b.exists(statefs.MarkerName(first, statefs.Running)) || !b.exists(statefs.MarkerName(second.ID, statefs.Queued)) {
		t.Error("the first does not run any more, or the second does not wait")
	}
	for _, id := range []statefs.ID{first, second.ID} {
		hold.release <- struct{}{}
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Starts != 1 {
			t.Errorf("%s is %s after %d starts", id, rec.Status, rec.Starts)
		}
		if next := hold.next(b); id == first && next != second.ID || id == second.ID && next != third.ID {
			t.Errorf("%s begins after %s", next, id)
		}
	}
	b.beganInTurn(first, second.ID, third.ID)
}

// A schedule with overlap cancel: a slot cancels the work of the previous one, and starts when it
// has ended.
func TestASlotCancelsTheWorkBeforeIt(t *testing.T) {
	t.Parallel()
	hold := &holding{make(chan string), make(chan struct{})}
	b := setup(t, cancels, hold.handlers())
	first := hold.next(b)
	second := b.follows("cancels", first)
	rec := b.awaitEnd(first)
	if rec.Status != statefs.Cancelled || rec.Starts != 1 {
		t.Errorf("the first is %s after %d starts, want cancelled while it ran", rec.Status, rec.Starts)
	}
	if log := b.log(first); log == "" {
		t.Error("the log of the first does not say that it was cancelled")
	}
	if next := hold.next(b); next == first {
		t.Errorf("%s begins again", next)
	} else if next == second.ID {
		b.beganInTurn(first, second.ID)
	} else if rec := b.awaitEnd(second.ID); rec.Status != statefs.Cancelled { // the next slot was faster
		t.Errorf("%s begins, and the one before it is %s", next, rec.Status)
	}
}

// beganInTurn checks that each operation began after the previous one had ended.
func (b *bench) beganInTurn(ids ...statefs.ID) {
	b.t.Helper()
	for i := range ids[1:] {
		one, err := b.tree.ReadRecord(ids[i])
		must(b.t, err)
		var next *statefs.Record
		b.await("the record says when "+ids[i+1].String()+" began", func() bool {
			next, err = b.tree.ReadRecord(ids[i+1])
			return err != nil || next.StartedAt != nil || next.Status.Terminal()
		})
		must(b.t, err)
		if one.FinishedAt == nil || next.StartedAt == nil || next.StartedAt.Before(*one.FinishedAt) {
			b.t.Errorf("%s ended %v, %s began %v", one.ID, one.FinishedAt, next.ID, next.StartedAt)
		}
	}
}
