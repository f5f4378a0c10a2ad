package history

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

func TestIndexSurvivesAndIsRebuilt(t *testing.T) {
	t.Parallel()
	copied := func(r *rig) {
		data, err := os.ReadFile(r.file(FileName))
		must(r.t, err)
		must(r.t, os.WriteFile(r.file("copy"), data, 0o640))
		must(r.t, os.Rename(r.file("copy"), r.file(FileName)))
	}
	cases := map[string]struct {
		between func(*rig)
		kept    bool // the previous file is used
		damaged bool // it is renamed
	}{
		"nothing happened":   {func(*rig) {}, true, false},
		"the file is gone":   {func(r *rig) { must(r.t, os.Remove(r.file(FileName))) }, false, false},
		"the file is a copy": {copied, false, false},
		"the list of live operations is gone": {func(r *rig) {
			must(r.t, os.Remove(r.file("live.list")))
		}, false, false},
		"the file is empty":   {func(r *rig) { must(r.t, os.Truncate(r.file(FileName), 0)) }, false, true},
		"the file is cut off": {func(r *rig) { must(r.t, os.Truncate(r.file(FileName), 3*4096)) }, false, true},
		"the file is noise": {func(r *rig) {
			noise := make([]byte, 100_000)
			for i := range noise {
				noise[i] = byte(rand.Uint32())
			}
			must(r.t, os.WriteFile(r.file(FileName), noise, 0o640))
		}, false, true},
		"the file is a folder": {func(r *rig) {
			must(r.t, os.Remove(r.file(FileName)))
			must(r.t, os.Mkdir(r.file(FileName), 0o750))
		}, false, true},
		"the file is a link": {func(r *rig) {
			must(r.t, os.Rename(r.file(FileName), r.file("elsewhere")))
			must(r.t, os.Symlink("elsewhere", r.file(FileName)))
		}, false, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			for _, job := range []string{"a", "b", "c"} {
				r.end(job, statefs.Completed)
			}
			before, last := r.feed(0)
			r.stop()
			c.between(r)
			r.open()
			r.mu.Lock()
			built := !r.reading.began.IsZero()
			r.mu.Unlock()
			if built == c.kept {
				t.Errorf("built again: %v, want %v", built, !c.kept)
			}
			if r.exists(FileName+".damaged") != c.damaged {
				t.Errorf("set aside: %v, want %v", !c.damaged, c.damaged)
			}
			r.end("d", statefs.Failed)
			if jobs, page := r.list(Query{}); !slices.Equal(jobs, []string{"d", "c", "b", "a"}) ||
				page.Total != 4 || !page.Exact {
				t.Errorf("%v, %+v", jobs, page)
			}
			after, _ := r.feed(0)
			if len(before) != 3 || len(after) != 4 || !slices.EqualFunc(before, after[:3],
				func(a, b Row) bool { return a.Number == b.Number && a.ID == b.ID }) {
				t.Errorf("the numbers changed: %+v, %+v", before, after)
			}
			if rows, _ := r.feed(last); len(rows) != 1 || rows[0].Job != "d" || rows[0].Number <= last {
				t.Errorf("after %d: %+v", last, rows)
			}
		})
	}
}

// TestDamageWhileOpen truncates the file of an index that is in use.
func TestDamageWhileOpen(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ended := prooftest.Count(1000, 3000, 3000)
	for range ended {
		r.end("a", statefs.Completed)
	}
	must(t, r.awaitApplied(t.Context()))
	must(t, os.Truncate(r.file(FileName), 8*4096))
	deadline := time.Now().Add(patience)
	for {
		page, err := r.List(t.Context(), &Query{Limit: 200, Text: "nowhere"}, viewOf())
		if err == nil {
			if page.Total != 0 {
				t.Fatalf("%d", page.Total)
			}
			if page, err = r.List(t.Context(), &Query{Limit: 0}, viewOf()); err == nil && page.Total == ended &&
				r.exists(FileName+".damaged") {
				return
			}
		}
		if err != nil && !errors.Is(err, ErrNotReady) || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", page, err)
		}
		<-r.Built()
	}
}

// TestKilled leaves the index as a killed daemon does: in the same boot, everything written is
// there.
func TestKilled(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.end("a", statefs.Completed)
	lost := r.unpublished("b", statefs.Completed)
	must(t, r.awaitApplied(t.Context()))
	// The state of the file at this moment.
	data, err := os.ReadFile(r.file(FileName))
	must(t, err)
	r.stop()
	f, err := os.OpenFile(r.file(FileName), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	_, err = f.Write(data)
	must(t, errors.Join(err, f.Close()))
	r.open()
	if jobs, _ := r.list(Query{}); !slices.Equal(jobs, []string{"a"}) {
		t.Errorf("%v", jobs)
	}
	// The daemon adds again what it finds in its list of live operations.
	r.Ended(lost)
	if jobs, _ := r.list(Query{}); !slices.Equal(jobs, []string{"b", "a"}) {
		t.Errorf("%v", jobs)
	}
	if rows, _ := r.feed(0); len(rows) != 2 || rows[1].Number != lost.FinishedSeq {
		t.Errorf("%+v", rows)
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.end("a", statefs.Completed)
	r.stop()
	store, err := Open(r.owner, nil) // CaughtUp was not called
	must(t, err)
	defer func() { must(t, store.Close()) }()
	if _, err := store.List(t.Context(), &Query{}, viewOf()); !errors.Is(err, ErrNotReady) {
		t.Errorf("list: %v", err)
	}
	if _, _, err := store.Finished(t.Context(), 0, 1); !errors.Is(err, ErrNotReady) {
		t.Errorf("feed: %v", err)
	}
	// Live operations can be listed all the same.
	row := Row{ID: newID(t, 7), Job: "x", Status: statefs.Running, Created: noon}
	page, err := store.List(t.Context(), &Query{Statuses: []statefs.State{statefs.Running}, Limit: 10},
		viewOf(row.Pack()))
	if err != nil || page.Total != 1 || len(page.Entries) != 1 || !page.Entries[0].Live {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestOldRecords numbers ends that an earlier version recorded without a number.
func TestOldRecords(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec := r.end("a", statefs.Completed)
	must(t, r.awaitApplied(t.Context()))
	r.stop()
	rec.FinishedSeq = 0
	must(t, r.owner.AmendRecord(rec))
	must(t, os.Remove(r.file(FileName)))
	r.open()
	rows, last := r.feed(0)
	rec, err := r.tree.ReadRecord(rec.ID)
	if err != nil || len(rows) != 1 || rec.FinishedSeq == 0 || rows[0].Number != rec.FinishedSeq ||
		last < rec.FinishedSeq {
		t.Errorf("%+v, %d, %+v, %v", rows, last, rec, err)
	}
}

// TestCorruptRecords checks that corrupt records are not in the history, and that all others are.
func TestCorruptRecords(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec := r.end("a", statefs.Completed)
	r.end("b", statefs.Completed)
	long := r.unpublishedHostile()
	r.stop()
	must(t, os.WriteFile(filepath.Join(r.dir, "operations", rec.ID.Day(), rec.ID.String()+".json"), []byte("{"), 0o640))
	must(t, os.Remove(r.file(FileName)))
	r.open()
	must(t, r.Delete(t.Context(), long, Guards{}, r.clock))
	if jobs, page := r.list(Query{}); !slices.Equal(jobs, []string{"b"}) || page.Total != 1 {
		t.Errorf("%v", jobs)
	}
	if err := r.Delete(t.Context(), rec.ID, Guards{}, r.clock); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(r.tree.LogPath(rec.ID)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func newID(t *testing.T, n uint64) statefs.ID {
	t.Helper()
	id, err := statefs.MakeID("g-x", noon, 1, n)
	must(t, err)
	return id
}

// unpublishedHostile leaves a record with names that the index cannot hold.
func (r *rig) unpublishedHostile() statefs.ID {
	r.t.Helper()
	rec := r.end("c", statefs.Completed)
	rec.Job, rec.Lane, rec.Key = strings.Repeat("x", 100_000), strings.Repeat("y\x00", 100_000),
		strings.Repeat("z", 100_000)
	must(r.t, r.owner.AmendRecord(rec))
	return rec.ID
}

// A total is not exact while a record cannot be read; after a repair of the file it is.
func TestRecordThatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.end("a", statefs.Completed)
	damaged := r.end("b", statefs.Completed)
	path := r.file(filepath.Join("operations", damaged.ID.Day(), damaged.ID.String()+".json"))
	good, err := os.ReadFile(path)
	must(t, err)
	for _, c := range []struct {
		text  []byte
		total int
	}{{good[:len(good)/2], 1}, {[]byte(`{"version":99}`), 1}, {good, 2}} {
		must(t, os.WriteFile(path, c.text, 0o640))
		r.stop()
		must(t, os.Remove(r.file(FileName)))
		r.open()
		if _, page := r.list(Query{}); page.Total != c.total || page.Exact != (c.total == 2) {
			t.Errorf("with the record %.20q: %d, exact %v", c.text, page.Total, page.Exact)
		}
	}
}

// A killed daemon leaves ends that are in no index. Until the next daemon has added them, it must
// not show a later end, nor answer that there is none.
func TestQueriesWaitForEarlierEnds(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first := r.end("a", statefs.Completed)
	_, after := r.feed(0)
	cutOff := r.unpublished("b", statefs.Completed)
	r.stop()
	store, err := Open(r.owner, nil)
	must(t, err)
	defer func() { must(t, store.Close()) }()
	store.Ended(cutOff)
	store.CaughtUp()
	if err := store.Ready(); !errors.Is(err, ErrNotReady) {
		t.Errorf("answers before anything was entered: %v", err)
	}
	if _, last, err := store.Finished(t.Context(), after, 5); !errors.Is(err, ErrNotReady) {
		t.Errorf("the feed goes on after %d: %v", last, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- store.Run(ctx) }()
	<-store.Built()
	rows, _, err := store.Finished(t.Context(), after, 5)
	if err != nil || len(rows) != 1 || rows[0].ID != cutOff.ID || after != first.FinishedSeq {
		t.Errorf("after %d come %v, %v", after, rows, err)
	}
	stop()
	must(t, <-ran)
}
