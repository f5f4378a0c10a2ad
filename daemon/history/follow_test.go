package history

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// followRig is a rig whose storage commits by a journal. Its index writes only what a caller waits for.
type followRig struct {
	*rig
	options statefs.Options
	leave   func() // ends the use of the storage
}

func setupFollow(t *testing.T) *followRig {
	t.Helper()
	r := &followRig{rig: &rig{t: t, dir: filepath.Join(t.TempDir(), "storage"), clock: noon}, leave: func() {}}
	r.options = statefs.Options{
		Durability: statefs.Power, Now: func() time.Time { return r.clock },
		Commit: statefs.CommitOptions{Method: statefs.CommitJournal},
	}
	t.Cleanup(func() { r.leave() })
	r.start()
	return r
}

// start begins as a daemon does: the index is opened, then the journal is used, and then ends from before are known.
func (r *followRig) start() {
	r.t.Helper()
	var err error
	r.tree, err = statefs.Open(r.dir, r.options)
	must(r.t, err)
	r.owner, err = statefs.Own(r.tree)
	must(r.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	owner, tree := r.owner, r.tree
	r.openWith(func(s *Store) {
		s.followInterval = time.Hour
		begun := make(chan struct{})
		go func() { ended <- owner.Journal.Use(ctx, begun) }()
		<-begun
	})
	r.leave = func() {
		r.leave = func() {}
		stop()
		must(r.t, <-ended)
		r.stop()
		must(r.t, errors.Join(owner.Release(), tree.Close()))
	}
}

// settle waits until the index follows the journal and has all changes until now.
func (r *followRig) settle() {
	r.t.Helper()
	must(r.t, r.Sync(r.t.Context()))
	if follows, _ := r.followsTo(); !follows && r.owner.Journal.InUse() {
		r.t.Fatal("the index does not follow the journal")
	}
}

// crash makes the storage go on as it is at this moment, in a copy: what the kernel had after a kill, or what the disk
// had after a power cut, if nothing was written since the last sync. The copy gets its own place, and another boot of
// the machine after a power cut.
func (r *followRig) crash(power bool) {
	r.t.Helper()
	to := filepath.Join(r.t.TempDir(), "storage")
	err := os.CopyFS(to, os.DirFS(r.dir))
	for errors.Is(err, fs.ErrNotExist) { // a file was renamed during the copy
		must(r.t, os.RemoveAll(to))
		err = os.CopyFS(to, os.DirFS(r.dir))
	}
	must(r.t, err)
	r.leave()
	r.dir = to
	r.changeState(func(s *fileState) {
		if power {
			s.Boot = "another"
		}
	})
}

// changeState changes the state of the index while it is closed, and makes it that of the file itself.
func (r *followRig) changeState(change func(*fileState)) {
	r.t.Helper()
	info, err := os.Lstat(r.file(FileName))
	must(r.t, err)
	db, err := bolt.Open(r.file(FileName), 0o640, nil)
	must(r.t, err)
	must(r.t, db.Update(func(tx *bolt.Tx) error {
		x := indexOf(tx)
		state, err := x.state()
		if err != nil {
			return err
		}
		state.Inode = inode(info)
		change(&state)
		data, err := json.Marshal(state)
		must(r.t, err)
		return x.meta.Put(keyState, data)
	}))
	must(r.t, db.Close())
}

// wantJobs fails unless the lists and the feed have the operations, in the order of their ends, and the index was built
// or not.
func (r *followRig) want(built bool, jobs ...string) {
	r.t.Helper()
	r.mu.Lock()
	was := !r.reading.began.IsZero()
	r.mu.Unlock()
	if was != built {
		r.t.Errorf("the index was built: %v, want %v", was, built)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel() // do not wait
	rows, _, err := r.Finished(ctx, 0, 1000)
	must(r.t, err)
	var fed []string
	for _, row := range rows {
		fed = append(fed, row.Job)
	}
	slices.Reverse(fed)
	listed, page := r.list(Query{})
	slices.Reverse(jobs)
	if !slices.Equal(fed, jobs) || !slices.Equal(listed, jobs) || page.Total != len(jobs) {
		r.t.Errorf("the feed has %v, the list has %v of %d, want %v", fed, listed, page.Total, jobs)
	}
}

// transactions returns how many transactions have written the index.
func (r *followRig) transactions() (n int) {
	r.t.Helper()
	must(r.t, r.db.View(func(tx *bolt.Tx) error {
		n = tx.ID()
		return nil
	}))
	return n
}

// TestEndsWaitForTheirSecond: what has ended is in lists, in the feed and found by its ID, and no transaction is made
// for it alone.
func TestEndsWaitForTheirSecond(t *testing.T) {
	t.Parallel()
	r := setupFollow(t)
	r.settle()
	before := r.transactions()
	var jobs []string
	for n := range 50 {
		jobs = append(jobs, "j"+strconv.Itoa(n))
		rec := r.end(jobs[n], statefs.Completed)
		if row, has, err := r.Find(rec.ID); err != nil || !has || row.Number != rec.FinishedSeq {
			t.Fatalf("%+v, %v, %v", row, has, err)
		}
		states, err := r.CountStates(viewOf())
		if err != nil || states[statefs.Completed] != n+1 {
			t.Fatalf("%v, %v", states, err)
		}
	}
	r.want(true, jobs...)
	if after := r.transactions(); after != before {
		t.Errorf("%d transactions", after-before)
	}
	r.settle()
	if after := r.transactions(); after != before+1 {
		t.Errorf("%d transactions in all, want 1", after-before)
	}
	rows, last, err := r.Finished(t.Context(), 0, 20)
	if err != nil || len(rows) != 20 || last != rows[19].Number {
		t.Errorf("%d rows up to %d, %v", len(rows), last, err)
	}
}

// TestIndexIsTrustedAfterACrash: the next start enters what the journal has and the index lacks, and reads no other
// record.
func TestIndexIsTrustedAfterACrash(t *testing.T) {
	t.Parallel()
	for name, power := range map[string]bool{"kill": false, "power cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupFollow(t)
			deleted := r.end("deleted", statefs.Completed)
			r.end("a", statefs.Completed)
			pinned := r.end("b", statefs.Failed)
			r.settle()
			must(t, r.Delete(t.Context(), deleted.ID, Guards{}, r.clock))
			late := r.end("late", statefs.Completed)
			must(t, r.Delete(t.Context(), late.ID, Guards{}, r.clock))
			must(t, r.Pin(t.Context(), pinned.ID, true))
			stopped := r.stopAndEnd("c")
			r.end("d", statefs.Cancelled)
			r.crash(power)
			must(t, os.RemoveAll(r.file("live.list"))) // it is never synced
			// A record that only a build would read.
			must(t, os.Remove(filepath.Join(r.dir, "operations", pinned.ID.Day(), pinned.ID.String()+".json")))
			r.start()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			rows, _, err := r.Finished(ctx, 0, 100)
			if err != nil || len(rows) != 5 || !rows[2].NeedsPerson || rows[2].Number != stopped.NeedsPersonSeq {
				t.Errorf("%+v, %v", rows, err)
			}
			if listed, _ := r.list(Query{}); !slices.Equal(listed, []string{"d", "c", "b", "a"}) {
				t.Errorf("%v", listed)
			}
			if row, has, err := r.Find(pinned.ID); err != nil || !has || !row.Pinned {
				t.Errorf("%+v, %v, %v", row, has, err)
			}
			for _, id := range []statefs.ID{deleted.ID, late.ID} {
				if _, has, err := r.Find(id); err != nil || has {
					t.Errorf("a deleted operation is found: %v, %v", has, err)
				}
				if gone, err := r.Gone(id); err != nil || !gone {
					t.Errorf("a deleted operation is forgotten: %v, %v", gone, err)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.reading.began.IsZero() {
				t.Error("the index was built again")
			}
		})
	}
}

// stopAndEnd runs an operation that stops for a person and ends then.
func (r *followRig) stopAndEnd(job string) *statefs.Record {
	r.t.Helper()
	return r.end(job, statefs.Completed, func(rec *statefs.Record) {
		number, err := r.Number()
		must(r.t, err)
		stop := *rec
		stop.NeedsPersonSeq, stop.Status, stop.FinishedAt, stop.Result = number, statefs.FailedManual, nil, ""
		must(r.t, r.owner.WriteRecord(&stop))
		must(r.t, r.owner.Sync(rec.ID))
		r.Stopped(&stop, 0)
		rec.NeedsPersonSeq = number
	})
}

// TestDeletedDayIsReplayed: a line that deletes a day takes operations out of an index that is behind it.
func TestDeletedDayIsReplayed(t *testing.T) {
	t.Parallel()
	r := setupFollow(t)
	rec := r.end("a", statefs.Completed)
	r.settle()
	must(t, r.owner.DeleteDay(rec.ID.Day()))
	r.crash(true)
	r.start()
	r.want(false)
	if gone, err := r.Gone(rec.ID); err != nil || !gone {
		t.Errorf("%v, %v", gone, err)
	}
}

// TestIndexThatCannotFollowIsBuilt: the journal does not have what such an index lacks, or is older.
func TestIndexThatCannotFollowIsBuilt(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*fileState)
		built  bool
	}{
		"it is behind":                        {func(s *fileState) { *s.Applied -= 2 }, false},
		"it is ahead of the journal":          {func(s *fileState) { *s.Applied += 100 }, true},
		"it is of another storage":            {func(s *fileState) { s.Storage = "another" }, true},
		"it was not synced":                   {func(s *fileState) { s.Synced = false }, true},
		"it was written without the journal":  {func(s *fileState) { s.Synced, s.Applied = false, nil }, true},
		"it is a copy":                        {func(s *fileState) { s.Inode++ }, true},
		"it was closed, and is behind":        {func(s *fileState) { s.Clean, s.Synced = true, false }, false},
		"the journal begins behind its lines": {nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupFollow(t)
			r.end("a", statefs.Completed)
			r.settle()
			r.end("b", statefs.Completed)
			r.crash(true)
			if c.change != nil {
				r.changeState(c.change)
			} else {
				r.checkpointAway()
			}
			r.start()
			r.want(c.built, "a", "b")
		})
	}
}

// checkpointAway runs the storage without its index, with orderly stops, until the journal has begun anew.
func (r *followRig) checkpointAway() {
	r.t.Helper()
	data, err := os.ReadFile(r.file(FileName))
	must(r.t, err)
	must(r.t, os.Remove(r.file(FileName)))
	r.start()
	r.leave()
	must(r.t, os.RemoveAll(r.file("journal")))
	f, err := os.OpenFile(r.file(FileName), os.O_WRONLY|os.O_TRUNC, 0)
	must(r.t, err)
	_, err = f.Write(data)
	must(r.t, errors.Join(err, f.Close()))
	r.changeState(func(s *fileState) { s.Boot = "another" })
}

// TestCommitFilesAfterTheJournal: an index that followed is not trusted for that once operations end without a line.
func TestCommitFilesAfterTheJournal(t *testing.T) {
	t.Parallel()
	for name, power := range map[string]bool{"kill": false, "power cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupFollow(t)
			r.end("a", statefs.Completed)
			r.settle()
			r.end("b", statefs.Completed)
			r.crash(true)
			r.options.Commit.Method = statefs.CommitFiles
			r.start()
			r.want(false, "a", "b")
			r.end("c", statefs.Completed)
			must(t, r.awaitApplied(t.Context()))
			r.crash(power)
			r.start()
			r.want(power, "a", "b", "c")
			r.leave()
			r.options.Commit.Method = statefs.CommitJournal
			r.start()
			r.end("d", statefs.Completed)
			r.settle()
			r.end("e", statefs.Completed)
			r.crash(true)
			r.start()
			r.want(false, "a", "b", "c", "d", "e")
		})
	}
}

// TestCheckpointWaitsForTheIndex: a checkpoint goes no further than the index, which it has written first. An end whose
// row the index does not have yet holds it back; an index that is being built does not.
func TestCheckpointWaitsForTheIndex(t *testing.T) {
	t.Parallel()
	r := setupFollow(t)
	r.end("a", statefs.Completed)
	_, line, _ := r.owner.Journal.Reach()
	if has := r.checkpoint(t.Context(), line); has != line {
		t.Errorf("the index has line %d, want %d", has, line)
	}
	if _, applied := r.followsTo(); applied != line {
		t.Errorf("the index says %d, want %d", applied, line)
	}
	rec := r.unpublished("b", statefs.Completed)
	if has := r.checkpoint(t.Context(), rec.LSN); has >= rec.LSN {
		t.Errorf("the index has line %d, and the row of line %d is not published", has, rec.LSN)
	}
	r.Ended(rec)
	if has := r.checkpoint(t.Context(), rec.LSN); has != rec.LSN {
		t.Errorf("the index has line %d, want %d", has, rec.LSN)
	}
	r.leave()
	must(t, os.Remove(r.file(FileName)))
	r.start()
	r.want(true, "a", "b")
}
