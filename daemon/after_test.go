package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
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
`

// after submits a job that comes after others.
func (b *bench) after(job, require string, parents ...statefs.ID) statefs.ID {
	b.t.Helper()
	def := b.catalog.Get("test", job)
	params, err := def.BindJSON(nil)
	must(b.t, err)
	s, err := submit.Build(def, params, submit.Options{After: parents, Require: require}, b.tree.Now())
	must(b.t, err)
	rec, err := b.tree.Submit(b.t.Context(), s)
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
	if why := b.awaitWaiting(third, statefs.WaitsForOthers); why.HeldBy != first {
		t.Errorf("the third waits %+v", why)
	}
	b.awaitWaiting(fourth, statefs.WaitsForOthers)
	if _, err := b.daemon.guards(); err != nil {
		t.Fatal(err)
	}
	if g, err := b.daemon.guards(); err != nil || !g.Referred[first] || g.Referred[fourth] {
		t.Errorf("referred to are %v, %v", g.Referred, err)
	}
	// A restart finds it waiting.
	must(t, b.stop())
	b.start()
	b.awaitWaiting(third, statefs.WaitsForOthers)
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
	b.awaitState(third, statefs.FailedManual)
	rec, err := b.tree.ReadRecord(third)
	must(t, err)
	if rec.Reason != "dependency" || rec.Error.Code != "dependency" || rec.NeedsPersonSeq == 0 || !strings.Contains(rec.Error.Message, first.String()) {
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
	b.poll("nobody waits any more", func() bool { return len(b.daemon.chains.parents()) == 0 })
}

// What cannot succeed any more says so at once: its parent has failed, has been cancelled, or is not there.
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

// While it waits for another one, an operation can be paused and cancelled like every other one.
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
