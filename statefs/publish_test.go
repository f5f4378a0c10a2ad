package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
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
		recs := drafts(t, tree, 2*maxSyncs+1, nil)
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
		wantNames(t, filepath.Join(tree.Dir(), takenDir))
		if alone := submit(t, tree); alone.Batch != nil {
			t.Errorf("one that is submitted alone is of the list %s", alone.Batch)
		}
	}
}

// One record that cannot be written takes all others back.
func TestPublishAllOrNone(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	missing := foreignID(t, 77)
	recs := drafts(t, tree, 9, func(i int, s *Submission) {
		if i == 7 {
			s.RetryOf = &missing // whose items it cannot inherit
		}
	})
	if err := tree.Publish(recs...); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("published: %v", err)
	}
	wantNames(t, tree.JobsDir())
	wantNames(t, filepath.Join(tree.Dir(), takenDir))
	wantNames(t, filepath.Join(tree.Dir(), operationsDir, recs[0].ID.Day()))
	live, err := tree.readLive()
	check(t, err)
	if len(live) != 0 {
		t.Errorf("the list of live operations has %v", live)
	}
}

// A list whose markers could not all be made is left to the next start, which knows it by its file.
func TestPublishInPart(t *testing.T) {
	t.Parallel()
	o := own(t)
	recs := drafts(t, o.Tree, 3, nil)
	check(t, os.Mkdir(filepath.Join(o.JobsDir(), MarkerName(recs[1].ID, Queued)), 0o700))
	err := o.Publish(recs...)
	part, ok := errors.AsType[*PartError](err)
	if !ok || part.Missing != 2 || !errors.Is(err, fs.ErrExist) {
		t.Fatalf("published: %v", err)
	}
	cut, err := o.Batches()
	check(t, err)
	if len(cut) != 1 || !cut[recs[0].ID] {
		t.Errorf("lists that were cut off: %v", cut)
	}
	if put, err := o.Untake(); err != nil || put != 0 {
		t.Errorf("requests put back: %d, %v", put, err)
	}
	for _, rec := range recs {
		if _, err := o.ReadRecord(rec.ID); err != nil {
			t.Errorf("record: %v", err)
		}
	}
	check(t, o.ForgetBatches(cut))
	check(t, o.ForgetBatches(cut))
	if cut, err = o.Batches(); err != nil || len(cut) != 0 {
		t.Errorf("lists that are forgotten: %v, %v", cut, err)
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
	check(t, tree.ClaimKeys(KeyClaim{"a", first, "h1", now}, KeyClaim{hostile, second, "h2", now}))
	want := func(key string, since time.Duration, id ID) {
		t.Helper()
		c, err := tree.KeyClaim(key, now.Add(-since))
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
	check(t, tree.ClaimKeys(KeyClaim{"a", second, "h3", now}))
	want("a", 31*time.Hour, second)
	now = now.Add(-6 * time.Hour) // the clock is set back
	want("a", time.Hour, second)

	check(t, os.Truncate(filepath.Join(tree.Dir(), keyFile("a", now.Add(6*time.Hour))), 3)) // what a power cut leaves
	want("a", 48*time.Hour, first)
	check(t, owner.SweepKeys(now.Add(-48*time.Hour)))
	want("a", 48*time.Hour, first)
	check(t, owner.SweepKeys(now.Add(48*time.Hour)))
	want("a", 480*time.Hour, ID{})
	wantNames(t, filepath.Join(tree.Dir(), keysDir))
	check(t, tree.ClaimKeys(KeyClaim{"a", second, "h3", now})) // its folder is made again
	want("a", time.Hour, second)
}
