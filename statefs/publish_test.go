package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

func drafts(t *testing.T, tree *Tree, count int, change func(i int, s *Submission)) []*Record {
	t.Helper()
	var recs []*Record
	for i := range count {
		s := Submission{Group: "g", Job: "j"}
		if change != nil {
			change(i, &s)
		}
		rec, err := tree.Draft(s)
		check(t, err)
		recs = append(recs, rec)
	}
	return recs
}

func TestPublishSeveral(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		tree := openTree(t, t.TempDir(), Options{Durability: durability})
		recs := drafts(t, tree, 2*files.MaxSyncs+1, nil)
		wantNames(t, tree.JobsDir())
		check(t, tree.Publish(recs...))
		listing, err := tree.List()
		check(t, err)
		if len(listing.Markers) != len(recs) {
			t.Errorf("%d markers of %d", len(listing.Markers), len(recs))
		}
		for _, rec := range recs {
			back, err := tree.ReadRecord(rec.ID)
			check(t, err)
			if back.Batch == nil || *back.Batch != recs[0].ID {
				t.Fatalf("%s is of the list %v", rec.ID, back.Batch)
			}
		}
		var left []string
		if durability == Power {
			left = []string{recs[0].ID.String() + recordsSuffix}
		}
		wantNames(t, filepath.Join(tree.Dir(), takenDir), left...)
		if alone := submit(t, tree); alone.Batch != nil {
			t.Errorf("one that is submitted alone is of the list %s", alone.Batch)
		}
	}
}

// TestPublishAllOrNone: if one record cannot be written, none is published.
func TestPublishAllOrNone(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	missing := foreignID(t, 77)
	recs := drafts(t, tree, 9, func(i int, s *Submission) {
		if i == 7 {
			s.RetryOf = &missing // with items that it cannot inherit
		}
	})
	if err := tree.Publish(recs...); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("published: %v", err)
	}
	wantNames(t, tree.JobsDir())
	wantNames(t, filepath.Join(tree.Dir(), takenDir))
	wantNames(t, filepath.Join(tree.Dir(), operationsDir, recs[0].ID.Day()))
	live, err := tree.live.IDs()
	check(t, err)
	if len(live) != 0 {
		t.Errorf("the list of live operations has %v", live)
	}
}

// TestPublishInPart: if some markers of a list cannot be created, the next start creates them.
func TestPublishInPart(t *testing.T) {
	t.Parallel()
	o := own(t)
	recs := drafts(t, o.Tree, 3, nil)
	inTheWay := filepath.Join(o.JobsDir(), MarkerName(recs[1].ID, Queued))
	check(t, os.Mkdir(inTheWay, 0o700))
	err := o.Publish(recs...)
	if _, part := errors.AsType[*PartialPublishError](err); !part || !errors.Is(err, fs.ErrExist) {
		t.Fatalf("published: %v", err)
	}
	wantNames(t, filepath.Join(o.Dir(), takenDir), recs[0].ID.String()+batchSuffix)
	check(t, os.Remove(inTheWay))
	check(t, os.Remove(filepath.Join(o.Dir(), dayFile(recs[2].ID, ".json"))))
	if put, err := o.Requests.Restore(); err != nil || put != 0 {
		t.Errorf("requests put back: %d, %v", put, err)
	}
	if _, err := o.Batches.Recover(); err != nil {
		t.Error(err)
	}
	wantNames(t, filepath.Join(o.Dir(), takenDir))
	for _, rec := range recs {
		if back, err := o.ReadRecord(rec.ID); err != nil || back.Status != Queued {
			t.Errorf("record: %v", err)
		}
		if state, err := o.State(rec.ID); err != nil || state != Queued {
			t.Errorf("marker: %s, %v", state, err)
		}
	}
}

// TestRecoverBatches: records of a list that a power cut lost are restored from its file; later
// changes of its operations stay.
func TestRecoverBatches(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Power}))
	const (
		whole = iota
		emptied
		lost
		removed
		starting
		begun
		ended
		deleted
	)
	recs := drafts(t, o.Tree, deleted+1, nil)
	check(t, o.Publish(recs...))
	record := func(i int) string { return filepath.Join(o.Dir(), dayFile(recs[i].ID, ".json")) }
	marker := func(i int, state State) string { return filepath.Join(o.JobsDir(), MarkerName(recs[i].ID, state)) }
	check(t, os.Truncate(record(emptied), 0))
	check(t, os.Remove(record(lost)))
	check(t, os.Remove(marker(removed, Queued)))
	// The marker of a start is on disk, and the name of its record is not: the work has not
	// started.
	check(t, os.Rename(marker(starting, Queued), marker(starting, Running)))
	check(t, os.Truncate(record(starting), 0))
	check(t, os.Rename(marker(begun, Queued), marker(begun, Running)))
	check(t, os.Truncate(record(begun), 0)) // not by a power cut: it was synced before the work began
	check(t, os.WriteFile(o.LogPath(recs[begun].ID), []byte("begins\n"), 0o600))
	rec := *recs[ended]
	rec.Status, rec.FinishedSeq = Completed, 1
	check(t, finish(o, &rec, Queued))
	check(t, os.Remove(record(deleted)))
	check(t, os.Remove(marker(deleted, Queued)))

	made, err := o.Batches.Recover()
	check(t, err)
	if made != 3 {
		t.Errorf("made %d records and markers", made)
	}
	for i, want := range map[int]State{whole: Queued, emptied: Queued, lost: Queued, starting: Queued, ended: Completed} {
		if back, err := o.ReadRecord(recs[i].ID); err != nil || back.Status != want ||
			back.RequestHash != recs[i].RequestHash {
			t.Errorf("record %d: %+v, %v", i, back, err)
		}
	}
	for _, i := range []int{begun, deleted} {
		if back, err := o.ReadRecord(recs[i].ID); err == nil {
			t.Errorf("record %d is made again: %+v", i, back)
		}
	}
	wantNames(t, o.JobsDir(), MarkerName(recs[whole].ID, Queued), MarkerName(recs[emptied].ID, Queued),
		MarkerName(recs[lost].ID, Queued), MarkerName(recs[starting].ID, Running), MarkerName(recs[begun].ID, Running))

	file := recs[0].ID.String() + recordsSuffix
	wantNames(t, filepath.Join(o.Dir(), takenDir), file)
	check(t, o.Batches.Settle(time.Now().Add(-time.Hour)))
	wantNames(t, filepath.Join(o.Dir(), takenDir), file)
	check(t, o.Batches.Settle(time.Now().Add(time.Hour)))
	wantNames(t, filepath.Join(o.Dir(), takenDir))

	check(t, os.WriteFile(filepath.Join(o.Dir(), takenDir, recs[0].ID.String()+batchSuffix), []byte("{"), 0o600))
	if made, err := o.Batches.Recover(); made != 0 || err != nil {
		t.Errorf("a list that cannot be read: %d, %v", made, err)
	}
	wantNames(t, filepath.Join(o.Dir(), takenDir))
}

func TestPublishWhenTheFirstMarkerCannotBeMade(t *testing.T) {
	t.Parallel()
	o := own(t)
	recs := drafts(t, o.Tree, 3, nil)
	marker := MarkerName(recs[0].ID, Queued)
	check(t, os.Mkdir(filepath.Join(o.JobsDir(), marker), 0o700))
	if err := o.Publish(recs...); !errors.Is(err, fs.ErrExist) {
		t.Errorf("published: %v", err)
	}
	wantNames(t, o.JobsDir(), marker)
	wantNames(t, filepath.Join(o.Dir(), takenDir))
	wantNames(t, filepath.Join(o.Dir(), operationsDir, recs[0].ID.Day()))
}

func TestKeyClaims(t *testing.T) {
	t.Parallel()
	now := testTime
	tree := openTree(t, t.TempDir(), Options{Durability: Power, Now: func() time.Time { return now }})
	owner, err := Own(tree)
	check(t, err)
	t.Cleanup(func() { check(t, owner.Release()) })
	first, second := foreignID(t, 1), foreignID(t, 2)
	hostile := "../../jobs/x\x00\n" + first.String()
	check(t, tree.Keys.Claim(KeyClaim{"a", first, "h1", now}, KeyClaim{hostile, second, "h2", now}))
	want := func(key string, since time.Duration, id ID) {
		t.Helper()
		c, err := tree.Keys.Find(key, now.Add(-since))
		if id.IsZero() {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %v, %v", key, c, err)
			}
			return
		}
		if err != nil || c.ID != id || c.Key != key {
			t.Errorf("%q: %v, %v, want %s", key, c, err, id)
		}
	}
	want("a", time.Hour, first)
	want(hostile, 0, second)
	want("b", time.Hour, ID{})
	now = now.Add(30 * time.Hour)
	want("a", 24*time.Hour, ID{})
	want("a", 31*time.Hour, first)
	check(t, tree.Keys.Claim(KeyClaim{"a", second, "h3", now}))
	want("a", 31*time.Hour, second)
	now = now.Add(-6 * time.Hour) // the clock is set back
	want("a", time.Hour, second)

	check(t, os.Truncate(filepath.Join(tree.Dir(), keyFile("a", now.Add(6*time.Hour))), 3)) // as after a power cut
	want("a", 48*time.Hour, first)
	check(t, owner.Keys.Sweep(now.Add(-48*time.Hour)))
	want("a", 48*time.Hour, first)
	check(t, owner.Keys.Sweep(now.Add(48*time.Hour)))
	want("a", 480*time.Hour, ID{})
	wantNames(t, filepath.Join(tree.Dir(), keysDir))
	check(t, tree.Keys.Claim(KeyClaim{"a", second, "h3", now})) // its folder is created again
	want("a", time.Hour, second)
}

// BenchmarkSubmit compares single submits with lists. Run it on a disk, with -cpu 2.
func BenchmarkSubmit(b *testing.B) {
	for _, count := range []int{1, 100} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			tree, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = tree.Close() }()
			b.SetParallelism(max(1, 16/count)) // with -cpu 2: 32 goroutines that submit one at a time, or two that submit lists
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					recs := make([]*Record, count)
					for i := range recs {
						if recs[i], err = tree.Draft(Submission{Group: "g", Job: "j"}); err != nil {
							b.Error(err)
						}
					}
					if err := tree.Publish(recs...); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N*count)/b.Elapsed().Seconds(), "submits/s")
		})
	}
}
