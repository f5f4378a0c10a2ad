package daemon

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

const chainJobs = `
group: test
name: wait
handler: wait
---
group: test
name: count
handler: count
---
group: test
name: fails
run: [sh, -c, 'exit 3']
---
group: test
name: person
exit_codes: {manual: [77]}
run: [sh, -c, 'exit 77']
`

// after submits a job that waits for parents.
func (b *bench) after(job, require string, parents ...statefs.ID) statefs.ID {
	b.t.Helper()
	return b.afterWith(job, submit.Options{After: parents, Require: require})
}

func (b *bench) afterWith(job string, options submit.Options) statefs.ID {
	b.t.Helper()
	def := b.catalog.Get("test", job)
	params, err := def.BindJSON(nil)
	must(b.t, err)
	s, err := submit.Build(def, params, options, b.tree.Now())
	must(b.t, err)
	rec, err := publish(b.tree, s)
	must(b.t, err)
	return rec.ID
}

func TestChain(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	first, second := b.submit("wait", ""), b.submit("count", "")
	b.awaitEnd(second)
	third := b.after("count", "", second, first)
	fourth := b.after("count", statefs.RequireEnd, third, first)
	b.poll("the third waits for the first", func() bool { // it may briefly wait for the second, which has ended
		why, waits := b.daemon.Waiting(third)
		return waits && why.Reason == statefs.WaitsForOthers && why.HeldBy == first
	})
	b.awaitWaiting(fourth, statefs.WaitsForOthers)
	// It still waits after a restart.
	must(t, b.stop())
	b.start()
	b.awaitWaiting(third, statefs.WaitsForOthers)
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
	b.awaitState(third, statefs.FailedManual)
	rec, err := b.tree.ReadRecord(third)
	must(t, err)
	if rec.Reason != "dependency" || rec.Error.Code != "dependency" || rec.NeedsPersonSeq == 0 ||
		!strings.Contains(rec.Error.Message, first.String()) {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	b.awaitWaiting(fourth, statefs.WaitsForOthers) // it may still end
	b.touch(third, statefs.Retry)
	if rec := b.awaitEnd(third); rec.Status != statefs.Completed || rec.Result != statefs.Partial {
		t.Errorf("a person wanted it, and it is %s", rec.Status)
	}
	if rec := b.awaitEnd(fourth); rec.Status != statefs.Completed {
		t.Errorf("it needs only an end, and is %s", rec.Status)
	}
	b.poll("nobody waits any more", func() bool {
		return len(b.daemon.live.All()) == 0 && len(b.daemon.live.Children(first)) == 0
	})
}

// A daemon that was killed between writing the terminal record and removing the marker leaves both.
// The next daemon removes the marker, and the children start, even if they were reconciled before
// that.
func TestChainAfterAnEndThatWasCutShort(t *testing.T) {
	t.Parallel()
	b := prepare(t, chainJobs, testHandlers)
	parent := b.submit("wait", "")
	children := make([]statefs.ID, 50)
	for i := range children {
		children[i] = b.after("count", statefs.RequireEnd, parent)
	}
	owner, err := statefs.Own(b.tree)
	must(t, err)
	rec, err := owner.ReadRecord(parent)
	must(t, err)
	now := time.Now()
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, now))
	rec.FinishedAt, rec.Result = &now, statefs.CancelledResult
	must(t, owner.WriteEnd(rec))
	must(t, owner.Release())
	b.start()
	for _, id := range children {
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed {
			t.Errorf("%s is %s", id, rec.Status)
		}
	}
}

// The waiting reason and the log of an operation name an ancestor, at any distance, that waits for
// a person. The reason contains the time since when the operation waits.
func TestChainSaysWhoNeedsAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	person := b.submit("person", "")
	b.awaitState(person, statefs.FailedManual)
	child := b.after("count", "", person)
	last := b.after("count", statefs.RequireEnd, child)
	b.awaitWaiting(child, statefs.WaitsForOthers)
	why := b.awaitWaiting(last, statefs.WaitsForOthers)
	if rec, err := b.tree.ReadRecord(last); err != nil || why.Since == nil || !why.Since.Equal(rec.CreatedAt) ||
		why.HeldBy != child || why.NeedsPerson != person {
		t.Errorf("it waits %+v, %v", why, err)
	}
	for _, id := range []statefs.ID{child, last} {
		b.daemon.Follow(id, func() {})
	}
	b.awaitLog(child,
		"  Waiting: operation "+person.String()+" waits for a person; 'jobdir show "+person.String()+"' says why, ")
	b.awaitLog(last,
		"  Waiting: operation "+child.String()+" has not ended, and operation "+person.String()+" waits for a person; ")
	b.touch(person, statefs.Cancel)
	b.awaitEnd(person)
	b.awaitState(child, statefs.FailedManual)
	b.awaitLog(last,
		"  Waiting: operation "+child.String()+" waits for a person; 'jobdir show "+child.String()+"' says why, ")
	b.touch(child, statefs.Cancel)
	b.awaitEnd(last)
}

// The stream of a scheduled operation tells until when it waits.
func TestStreamSaysUntilWhenItWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	id := b.afterWith("count", submit.Options{Delay: time.Hour})
	b.awaitState(id, statefs.Scheduled)
	woken := make(chan struct{})
	b.daemon.Follow(id, func() { close(woken) })
	<-woken
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	if want := "  Waiting: it is to start at " + rec.DueAt.Local().Format("2006-01-02 15:04:05") +
		".\n"; b.log(id) != want {
		t.Errorf("its log is %q, want %q", b.log(id), want)
	}
}

// The parents of a live operation are neither deleted nor pruned, in whatever state the operation
// and its other parents are, until it has ended or a person retries it despite a failed parent.
func TestParentsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	b.config.Retention = history.Retention{Count: 1}
	must(t, b.stop())
	b.start()
	lives := b.submit("wait", "")
	child := func(o submit.Options) (parent, child statefs.ID) {
		parent = b.submit("count", "")
		b.awaitEnd(parent)
		o.After = append(o.After, parent)
		return parent, b.afterWith("count", o)
	}
	scheduled, first := child(submit.Options{Delay: time.Hour})
	second, waits := child(submit.Options{After: []statefs.ID{lives}})
	failed := b.submit("fails", "")
	b.awaitEnd(failed)
	manual := b.after("fails", "", failed) // no equal operation lives, which its retry would wait for
	held, paused := child(submit.Options{After: []statefs.ID{lives}})
	b.awaitState(first, statefs.Scheduled)
	b.awaitWaiting(waits, statefs.WaitsForOthers)
	b.awaitState(manual, statefs.FailedManual)
	b.touch(paused, statefs.Pause)
	b.awaitState(paused, statefs.Paused)
	check := func() {
		t.Helper()
		for parent, child := range map[statefs.ID]statefs.ID{scheduled: first, second: waits, held: paused, failed: manual} {
			var kept *history.HeldError
			want := "operation '" + child.String() + "', which lives, comes after it"
			if err := b.daemon.Delete(t.Context(), parent); !errors.As(err, &kept) || kept.Reason != want {
				t.Errorf("%s: %v, want %s", parent, err, want)
			}
		}
		if pruned, err := b.daemon.Prune(t.Context(), false); err != nil || len(pruned) > 0 {
			t.Errorf("pruned: %v, %v", pruned, err)
		}
	}
	check()
	must(t, b.stop())
	b.start()
	b.awaitWaiting(waits, statefs.WaitsForOthers)
	check()
	goes := func(id statefs.ID) {
		t.Helper()
		if err := b.daemon.Delete(t.Context(), id); err != nil && !errors.Is(err, history.ErrUnknown) {
			// the daemon may have pruned it
			t.Error(err)
		}
	}
	for _, id := range []statefs.ID{first, waits, paused} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
	b.touch(manual, statefs.Retry) // an equal live operation would refuse it
	b.awaitEnd(manual)
	for _, id := range []statefs.ID{failed, scheduled, second, held} {
		goes(id)
	}
}

// An operation whose parent has failed, was cancelled or does not exist reports that at once.
func TestParentThatCannotSucceed(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	failed, gone := b.submit("fails", ""), b.submit("count", "")
	b.awaitEnd(failed)
	b.awaitEnd(gone)
	child := b.after("count", "", failed)
	b.awaitState(child, statefs.FailedManual)
	if log := b.log(child); !strings.Contains(log, "'jobdir retry "+child.String()+"' starts it all the same") {
		t.Errorf("its log is %s", log)
	}
	must(t, os.Remove(strings.TrimSuffix(b.tree.LogPath(gone), ".log")+".json"))
	orphan := b.after("count", "", gone)
	b.awaitState(orphan, statefs.FailedManual)
	for _, id := range []statefs.ID{child, orphan} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
}

// An operation that waits for a parent can be paused and cancelled like any other.
func TestChainIsPausedAndCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t, chainJobs, testHandlers)
	first := b.submit("wait", "")
	second, third := b.after("count", "", first), b.after("count", "", first)
	b.awaitWaiting(second, statefs.WaitsForOthers)
	b.touch(second, statefs.Pause)
	b.awaitState(second, statefs.Paused)
	b.touch(third, statefs.Cancel)
	b.awaitEnd(third)
	b.touch(second, statefs.Resume)
	b.awaitWaiting(second, statefs.WaitsForOthers)
	b.touch(first, statefs.Cancel)
	b.awaitState(second, statefs.FailedManual)
	b.touch(second, statefs.Cancel)
	b.awaitEnd(second)
}
