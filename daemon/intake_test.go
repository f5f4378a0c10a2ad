package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// take submits through the intake of the daemon.
func (b *bench) take(job, params string) submit.Outcome {
	b.t.Helper()
	def := b.catalog.Get("test", job)
	bound, err := def.BindJSON([]byte(params))
	must(b.t, err)
	out, err := b.config.Intake.Submit(b.t.Context(), submit.Request{Definition: def, Params: bound})
	must(b.t, err)
	return out[0]
}

// The daemon tells the intake which operations are live: operations found at its start, operations
// of other processes, and operations that end.
func TestIntakeKnowsWhatLives(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	before := b.submit("wait", `{}`)
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree})
	b.start()
	b.awaitState(before, statefs.Running)
	if o := b.take("wait", `{}`); o.New || o.Record.ID != before {
		t.Errorf("what was there before the daemon: %s", o.Record.ID)
	}
	must(t, b.stop())
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree})
	b.start()
	if o := b.take("wait", `{}`); o.New || o.Record.ID != before {
		t.Errorf("after a restart: %s", o.Record.ID)
	}
	b.touch(before, statefs.Cancel)
	b.awaitEnd(before)
	next := b.take("wait", `{}`)
	if !next.New {
		t.Errorf("after its end: %s", next.Record.ID)
	}
	b.awaitState(next.Record.ID, statefs.Running)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(next.Record.ID, statefs.Running))))
	b.awaitEnd(next.Record.ID)
	if o := b.take("wait", `{}`); !o.New {
		t.Errorf("after its marker was removed: %s", o.Record.ID)
	}
}

// A list whose submit was interrupted among its markers is accepted as a whole. A marker that is
// removed from a complete list counts as removed.
func TestListsThatWereCutOff(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	list := func() []*statefs.Record {
		var recs []*statefs.Record
		for range 3 {
			rec, err := b.tree.Draft(statefs.Submission{
				Group: "test", Job: "wait",
				Definition: b.catalog.Get("test", "wait").Source(), DefinitionHash: b.catalog.Get("test", "wait").Hash(),
			})
			must(t, err)
			recs = append(recs, rec)
		}
		must(t, b.tree.Publish(recs...))
		return recs
	}
	remove := func(recs ...*statefs.Record) {
		for _, rec := range recs {
			must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(rec.ID, statefs.Queued))))
		}
	}
	cut, whole := list(), list()
	remove(cut[0], cut[2], whole[1])
	file := filepath.Join(b.dir, "taken", cut[0].ID.String())
	must(t, os.Rename(file+".records", file+".batch"))
	must(t, os.Truncate(filepath.Join(b.dir, "operations", cut[1].ID.Day(), cut[1].ID.String()+".json"), 0))
	b.start()
	for _, rec := range cut {
		b.awaitState(rec.ID, statefs.Running)
	}
	if got := b.awaitEnd(whole[1].ID); got.Status != statefs.Cancelled || got.Reason != "marker missing" {
		// the marker was removed by a person
		t.Errorf("%s is %s, %s", got.ID, got.Status, got.Reason)
	}
	b.awaitState(whole[0].ID, statefs.Running)
	if _, err := os.Lstat(file + ".batch"); !os.IsNotExist(err) {
		t.Errorf("the file of the list: %v", err)
	}
}
