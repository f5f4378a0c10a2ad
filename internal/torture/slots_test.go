package torture

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// slotJobs start every second, and no slot may be lost, neither while the daemon is down nor while an
// operation has not ended.
const slotJobs = `
group: t
name: queues
schedule: {cron: "* * * * * *", missed: all, overlap: queue}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN $$" >>"$EFFECTS"']
---
group: t
name: cancels
schedule: {cron: "* * * * * *", missed: all, overlap: cancel_previous}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN $$" >>"$EFFECTS"; exec sleep 1000']
`

// slotRecords returns the operations that a schedule has started, by the nominal time of their slots.
func slotRecords(t *testing.T, tree *statefs.Tree, dir, job string) map[time.Time]*statefs.Record {
	t.Helper()
	found := make(map[time.Time]*statefs.Record)
	days, err := os.ReadDir(filepath.Join(dir, "operations"))
	must(t, err)
	for _, day := range days {
		files, err := tree.ListDay(day.Name())
		must(t, err)
		for _, id := range files.Records {
			rec, err := tree.ReadRecord(id)
			must(t, err)
			text, ok := strings.CutPrefix(rec.IdempotencyKey, "schedule t/"+job+" ")
			if !ok {
				continue
			}
			slot, err := time.Parse(time.RFC3339, text)
			must(t, err)
			if cutOff(t, tree, rec) {
				continue
			}
			if other := found[slot]; other != nil {
				t.Errorf("slot %s of %s has fired twice: %s, %s", text, job, other.ID, rec.ID)
			}
			found[slot] = rec
		}
	}
	return found
}

// cutOff reports whether the submit of an operation was killed between record and marker, so that the
// operation was never visible.
func cutOff(t *testing.T, tree *statefs.Tree, rec *statefs.Record) bool {
	t.Helper()
	if n := len(rec.Transitions); rec.Status == statefs.Cancelled {
		return rec.Starts == 0 && rec.Transitions[n-1].Cause == statefs.CauseMarkerMissing
	}
	_, err := tree.State(rec.ID)
	if errors.Is(err, statefs.ErrNotLive) {
		return !rec.Status.Terminal()
	}
	must(t, err)
	return false
}

// slotsSeen returns the time from which a schedule had to fire, and the last slot that it handled.
func slotsSeen(t *testing.T, tree *statefs.Tree, job string) (from, last time.Time) {
	t.Helper()
	data, err := tree.Schedules.Read("t-" + job)
	must(t, err)
	var kept struct {
		Handled []struct{ From, To time.Time }
		Slot    time.Time
		Skipped string
	}
	must(t, json.Unmarshal(data, &kept))
	if len(kept.Handled) != 1 || kept.Skipped != "" {
		t.Fatalf("the schedule of %s is not of one piece: %s", job, data)
	}
	return kept.Handled[0].From, kept.Slot
}

// killAtSlot kills a daemon shortly after the next second: while it submits, records and starts slots.
func (r *rig) killAtSlot(d *daemon) {
	r.t.Helper()
	aim := time.Until(time.Now().Truncate(time.Second).Add(time.Second)) +
		time.Duration(r.random.Int64N(int64(60*time.Millisecond)))
	select {
	case <-time.After(aim):
	case <-d.ended:
		r.t.Fatalf("the daemon has ended: %s", d.stderr)
	}
	d.kill()
}

// TestSlotsAfterKills kills the daemon around the times at which schedules start jobs, and checks that each
// slot is handled exactly once.
func TestSlotsAfterKills(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "slots.yaml"), []byte(slotJobs), 0o600))
	names := []string{"queues", "cancels"}
	for range prooftest.Count(3, 8, 100) {
		r.killAtSlot(r.start())
	}
	d := r.start()
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	started := time.Now()
	for _, name := range names {
		until(t, "the last daemon has fired a slot of "+name, func() bool {
			_, last := slotsSeen(t, tree, name)
			return last.After(started)
		})
	}
	r.killAtSlot(d)
	for _, name := range names {
		from, last := slotsSeen(t, tree, name)
		found := slotRecords(t, tree, r.dir, name)
		slots := slices.SortedFunc(maps.Keys(found), time.Time.Compare)
		// A slot may have been submitted but not recorded at the kill: the next daemon finds its operation by
		// its key.
		if n := len(slots); n > 0 && slots[n-1].Equal(last.Add(time.Second)) {
			slots = slots[:n-1]
		}
		first := from.UTC().Truncate(time.Second).Add(time.Second)
		for i, slot := range slots {
			if want := first.Add(time.Duration(i) * time.Second); !slot.Equal(want) {
				t.Fatalf("%s: slot %d is %s, want %s", name, i, slot, want)
			}
		}
		if n := len(slots); n == 0 || !slots[n-1].Equal(last) {
			t.Fatalf("%s: the slots are %v, want all up to %s", name, slots, last)
		}
	}
	// Another daemon without schedules finishes all operations: each has started in its turn or was cancelled
	// by a later one, none twice.
	for _, name := range names {
		must(t, tree.Schedules.Enable("t-"+name, false))
	}
	d = r.start()
	queues, cancels := slotRecords(t, tree, r.dir, "queues"), slotRecords(t, tree, r.dir, "cancels")
	newest := slices.MaxFunc(slices.Collect(maps.Keys(cancels)), time.Time.Compare)
	r.endsAs(t, tree, queues, statefs.Completed)
	running := cancels[newest]
	delete(cancels, newest)
	r.endsAs(t, tree, cancels, statefs.Cancelled)
	defer func() {
		if t.Failed() {
			r.showSlots(tree, newest, running.ID, d)
		}
	}()
	until(t, "the newest runs", func() bool {
		state, err := tree.State(running.ID)
		return err == nil && state == statefs.Running
	})
	must(t, r.checkEffects(tree))
	must(t, checkRecords(r.dir))
	d.stop(t)
}

// showSlots logs the operations of a schedule whose newest operation does not run.
func (r *rig) showSlots(tree *statefs.Tree, slot time.Time, id statefs.ID, d *daemon) {
	rec, err := tree.ReadRecord(id)
	r.t.Logf("the newest slot is %s: %+v, %v", slot, rec, err)
	kept, err := tree.Schedules.Read("t-cancels")
	r.t.Logf("the schedule is %s, %v", kept, err)
	markers, err := os.ReadDir(tree.JobsDir())
	r.t.Logf("jobs/ holds %v, %v", markers, err)
	r.t.Logf("the daemon said %s", d.stderr)
}

// endsAs waits until operations have ended, and checks their results.
func (r *rig) endsAs(t *testing.T, tree *statefs.Tree, found map[time.Time]*statefs.Record, status statefs.State) {
	t.Helper()
	for slot, was := range found {
		var rec *statefs.Record
		until(t, "the operation of each slot has ended", func() bool {
			var err error
			rec, err = tree.ReadRecord(was.ID)
			return err == nil && rec.Status.Terminal()
		})
		effects, err := os.ReadFile(r.effects)
		must(t, err)
		// A start that a kill interrupted before the command began is counted and repeated; the command
		// itself has started once.
		began := strings.Count(string(effects), rec.ID.String()+" ")
		if rec.Status != status || began > 1 || status == statefs.Completed && began != 1 {
			t.Errorf("slot %s: %s is %s, and its command has begun %d times", slot, rec.ID, rec.Status, began)
		}
	}
}
