package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// end submits an operation and ends it, with a log and an artifact.
func end(t *testing.T, o *Owner) *Record {
	t.Helper()
	rec := submit(t, o.Tree)
	check(t, os.WriteFile(o.LogPath(rec.ID), []byte("a line\n"), 0o640))
	check(t, os.MkdirAll(filepath.Join(o.ArtifactsPath(rec.ID), "sub"), 0o750))
	check(t, os.WriteFile(filepath.Join(o.ArtifactsPath(rec.ID), "sub", "file"), []byte("12345"), 0o640))
	rec.Artifacts = []string{"sub/file", "../outside"}
	rec.transit(Queued, Cancelled, CauseCancel, testTime)
	check(t, finish(o, rec, Queued))
	return rec
}

func TestReserveEnds(t *testing.T) {
	t.Parallel()
	o := own(t)
	submit(t, o.Tree)
	for _, c := range []struct{ least, first uint64 }{{0, 1}, {0, 1001}, {5000, 5000}, {10, 6000}} {
		if next, err := o.Numbers.NextEnd(); err != nil || max(next, c.least) != c.first {
			t.Errorf("least %d: next is %d, %v", c.least, next, err)
		}
		first, end, err := o.Numbers.ReserveEnds(c.least)
		if err != nil || first != c.first || end != c.first+reserveEnds {
			t.Errorf("least %d: %d to %d, %v; want %d", c.least, first, end, err, c.first)
		}
	}
	// Without storage.json, the storage does not know its last number.
	check(t, os.Remove(filepath.Join(o.Dir(), storageFile)))
	first, _, err := o.Numbers.ReserveEnds(0)
	if err != nil || first < 7000 {
		t.Errorf("a number was given again: %d, %v", first, err)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	now := testTime
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process, Now: func() time.Time { return now }}))
	gone, kept := end(t, o), end(t, o)
	if size := o.Footprint(kept); size < 12+100 {
		t.Errorf("footprint %d", size)
	}
	day := gone.ID.Day()
	files, err := o.ListDay(day)
	if err != nil || len(files.Records) != 2 || files.Records[0] != kept.ID || files.Others {
		t.Fatalf("%+v, %v", files, err)
	}
	check(t, os.Rename(filepath.Join(o.Dir(), dayFile(gone.ID, ".json")),
		filepath.Join(o.Dir(), dayFile(gone.ID, deletedSuffix))))
	files, err = o.ListDay(day)
	if err != nil || len(files.Records) != 1 || len(files.Deleted) != 1 || files.Others {
		t.Fatalf("a deletion that was cut off: %+v, %v", files, err)
	}
	check(t, o.Delete(day, []ID{gone.ID}))
	check(t, o.Delete(day, []ID{gone.ID}))
	if left, _ := filepath.Glob(filepath.Join(o.Dir(), dayFile(gone.ID, "*"))); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if rec, err := o.ReadRecord(kept.ID); err != nil || rec.Status != Cancelled {
		t.Errorf("the other one: %v", err)
	}
	if _, err := o.ReadRecord(gone.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the deleted one: %v", err)
	}
	now = now.AddDate(0, 0, 5) // until then a submit may use that folder
	check(t, o.Delete(day, []ID{kept.ID}))
	if days, err := o.Days(); err != nil || len(days) != 0 {
		t.Errorf("an empty day stays: %v, %v", days, err)
	}
	now = testTime
	if rec := submit(t, o.Tree); rec.ID.Day() != day {
		t.Error("the test is not what it says")
	}
}

func TestDeleteDay(t *testing.T) {
	t.Parallel()
	o := own(t)
	end(t, o)
	rec := end(t, o)
	check(t, o.DeleteDay(rec.ID.Day()))
	check(t, o.DeleteDay(rec.ID.Day()))
	if days, err := o.Days(); err != nil || len(days) != 0 {
		t.Errorf("%v, %v", days, err)
	}
	wantNames(t, filepath.Join(o.Dir(), tmpDir))
	if again := submit(t, o.Tree); again.ID.Day() != rec.ID.Day() {
		t.Error("the test is not what it says")
	}
}

func TestListDay(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"a log without a record": "g-j_2025-11-26_13-07-00_p1_r9.log",
		"a stranger":             "notes.txt",
		"another day's":          "g-j_2025-11-27_13-07-00_p1_r9.json",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := openTree(t, t.TempDir(), Options{Durability: Process})
			check(t, os.Mkdir(filepath.Join(tree.Dir(), operationsDir, "2025-11-26"), 0o750))
			put(t, tree, "", operationsDir, "2025-11-26", "g-j_2025-11-26_13-07-00_p1_r8.json")
			put(t, tree, "", operationsDir, "2025-11-26", "g-j_2025-11-26_13-07-00_p1_r8.log")
			files, err := tree.ListDay("2025-11-26")
			if err != nil || files.Others || len(files.Records) != 1 {
				t.Fatalf("%+v, %v", files, err)
			}
			put(t, tree, "", operationsDir, "2025-11-26", file)
			if files, err = tree.ListDay("2025-11-26"); err != nil || !files.Others || len(files.Records) != 1 {
				t.Fatalf("%+v, %v", files, err)
			}
		})
	}
}

func TestKeepDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 11, 26, 13, 0, 0, 0, time.UTC)
	tree := openTree(t, t.TempDir(), Options{Durability: Process, Now: func() time.Time { return now }})
	for day, kept := range map[string]bool{
		"2025-11-26": true, "2025-11-25": true, "2025-11-27": true,
		"2025-11-24": false,
	} {
		if tree.DayInUse(day) != kept {
			t.Errorf("%s: %v", day, !kept)
		}
	}
}
