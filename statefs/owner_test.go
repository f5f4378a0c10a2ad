package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs/files"
)

func TestOwnEmptiesTmp(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	target := put(t, tree, "precious", "target")
	put(t, tree, "", tmpDir, ".ID.json123")
	check(t, os.MkdirAll(filepath.Join(filepath.Join(tree.Dir(), tmpDir), "a", "b"), 0o750))
	check(t, os.Symlink(target, filepath.Join(filepath.Join(tree.Dir(), tmpDir), "link")))
	check(t, os.Symlink(filepath.Dir(target), filepath.Join(filepath.Join(tree.Dir(), tmpDir), "a", "folder")))
	ownTree(t, tree)
	wantNames(t, filepath.Join(tree.Dir(), tmpDir))
	if _, err := os.Stat(target); err != nil {
		t.Error(err)
	}
}

func TestMovePutBackRestore(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	check(t, o.Move(id, Queued, Running))
	if err := o.Move(id, Queued, Paused); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "move "+id.String()+" from queued to paused: ") {
		t.Errorf("a move of what is not there: %v", err)
	}
	check(t, o.RestoreMarker(id, Paused, testTime))
	check(t, o.RestoreMarker(id, Paused, testTime)) // it exists: nothing to do
	if err := o.Move(id, Running, Paused); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a move over another marker: %v", err)
	}
	if stamp, err := o.Stamp(MarkerName(id, Paused)); err != nil || !stamp.At.Equal(testTime) {
		t.Errorf("the restored marker says %+v, %v", stamp, err)
	}
	check(t, o.RemoveName(MarkerName(id, Paused)))

	typo := id.String() + ".run"
	check(t, os.Rename(filepath.Join(o.JobsDir(), MarkerName(id, Running)), filepath.Join(o.JobsDir(), typo)))
	check(t, o.RestoreName(typo, id, Running))
	if err := o.RestoreName(typo, id, Running); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second putting back: %v", err)
	}
	wantNames(t, o.JobsDir(), MarkerName(id, Running))
}

func TestNamesCannotLeaveTheFolder(t *testing.T) {
	t.Parallel()
	o := own(t)
	target := put(t, o.Tree, "precious", "target")
	for _, name := range []string{"../target", target, "../jobs/../target"} {
		if err := o.RemoveName(name); err == nil {
			t.Errorf("remove %s succeeded", name)
		}
		if _, err := o.Stamp(name); err == nil {
			t.Errorf("read of %s succeeded", name)
		}
	}
	if _, err := os.Stat(target); err != nil {
		t.Error(err)
	}
}

func TestFinishWritesTheRecordAndThenRemoves(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: durability}))
		rec := submit(t, o.Tree)
		check(t, rec.Apply(Queued, CauseCancel, testTime))
		check(t, finish(o, rec, Queued))
		check(t, finish(o, rec, Queued)) // as a start does after a crash
		if err := o.RemoveMarker(rec.ID, Queued); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a marker that is gone is removed: %v", err)
		}
		check(t, finish(o, rec, ""))
		wantNames(t, o.JobsDir())
		if back, err := o.ReadRecord(rec.ID); err != nil || back.Status != Cancelled {
			t.Errorf("the record is %+v, %v", back, err)
		}
		check(t, o.SyncAll())
	}
}

// TestFinishThatFailsKeepsTheMarker: a failure to make the record durable must not remove the
// marker.
func TestFinishThatFailsKeepsTheMarker(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Power}))
	rec := submit(t, o.Tree)
	folder, err := o.day(rec.ID.Day())
	check(t, err)
	folder.SyncBy(func() error { return fs.ErrInvalid })
	check(t, rec.Apply(Queued, CauseCancel, testTime))
	if _, ok := errors.AsType[*files.SyncError](finish(o, rec, Queued)); !ok {
		t.Error("a failed sync is no *SyncError")
	}
	wantNames(t, o.JobsDir(), MarkerName(rec.ID, Queued))
	wantLive(t, o, rec.ID)
}

func TestAppendedFiles(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	if _, err := o.OpenLog(rec.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log before the work: %v", err)
	}
	for range 2 {
		log, err := o.Output.AppendLog(rec.ID, "")
		check(t, err)
		_, err = log.WriteString("line\n")
		check(t, err)
		check(t, log.Close())
		items, err := o.Output.AppendItems(rec.ID, "")
		check(t, err)
		check(t, items.Close())
	}
	log, err := o.OpenLog(rec.ID)
	check(t, err)
	info, err := log.Stat()
	check(t, err)
	check(t, log.Close())
	if info.Size() != 10 || info.Mode() != files.Mode&^0o022 && info.Mode() != files.Mode {
		t.Errorf("the log has %d bytes and mode %s", info.Size(), info.Mode())
	}
}

func TestIdentityOfTheFolder(t *testing.T) {
	t.Parallel()
	o := own(t)
	check(t, o.checkJobsFolder())
	check(t, os.Rename(o.JobsDir(), o.JobsDir()+".away"))
	if err := o.checkJobsFolder(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that was moved away: %v", err)
	}
	check(t, os.Mkdir(o.JobsDir(), 0o750))
	if _, replaced := errors.AsType[*JobsFolderReplacedError](o.checkJobsFolder()); !replaced {
		t.Error("a folder that was replaced is the same")
	}
}
