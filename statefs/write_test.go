package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestModesOfFilesAndFolders(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "022", "077"} {
		dir := filepath.Join(t.TempDir(), "storage")
		id, err := ParseID(start(t, "umask", dir, umask).line(t))
		check(t, err)
		for name, want := range map[string]fs.FileMode{
			jobsDir: 0o750, newDir: 0o750, operationsDir: 0o750, definitionsDir: 0o750, takenDir: 0o750,
			corruptDir: 0o750, tmpDir: 0o750,
			".": 0o750, filepath.Join(operationsDir, id.Day()): 0o750,
			dayFile(id, ".json"): 0o640, filepath.Join(jobsDir, MarkerName(id, Queued)): 0o640, storageFile: 0o640,
		} {
			info, err := os.Stat(filepath.Join(dir, name))
			check(t, err)
			if info.Mode().Perm() != want {
				t.Errorf("umask %s: %s has mode %s, want %s", umask, name, info.Mode().Perm(), want)
			}
		}
	}
}

func TestReplaceGivesANewFileEachTime(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		tree := openTree(t, t.TempDir(), Options{Durability: durability})
		path := filepath.Join(tree.Dir(), "file")
		var before fs.FileInfo
		var held *os.File // keeps the inode number of the first file from being reused
		for _, content := range []string{"one", "a longer two", ""} {
			check(t, tree.files.replace("file", []byte(content), false))
			got, err := os.ReadFile(path)
			check(t, err)
			after, err := os.Stat(path)
			check(t, err)
			if string(got) != content || after.Mode() != fileMode || before != nil && os.SameFile(before, after) {
				t.Errorf("%s: %q with mode %s, same file %t", durability, got, after.Mode(), os.SameFile(before, after))
			}
			if held == nil {
				held, err = os.Open(path)
				check(t, err)
			}
			before = after
		}
		check(t, held.Close())
		wantNames(t, tree.TempDir())
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	check(t, os.Symlink("nothing", filepath.Join(tree.Dir(), "link")))
	check(t, tree.files.create("file", []byte("first"), false))
	for _, name := range []string{"file", "link", jobsDir} {
		if err := tree.files.create(name, []byte("second"), false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create %s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(tree.Dir(), "file")); err != nil || string(got) != "first" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	var wins atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := tree.files.create("raced", []byte("x"), false); err == nil {
				wins.Add(1)
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d creations of one name succeeded", wins.Load())
	}
	wantNames(t, tree.TempDir())
}

// TestTreesDoNotTearEachOthersFiles: two trees in one process, or in two containers where both
// processes have PID 1, must not share temporary names.
func TestTreesDoNotTearEachOthersFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c"} {
		tree := openTree(t, dir, Options{Durability: Process})
		wg.Go(func() {
			content := strings.Repeat(letter, 10_000)
			for range 200 {
				if err := tree.files.replace("of-"+letter, []byte(content), false); err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(filepath.Join(dir, "of-"+letter)); err != nil || string(got) != content {
					t.Errorf("of-%s holds %.20q and more, %v", letter, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestWritesSurviveAnEmptiedTmp: a starting daemon empties tmp/, even while another process is
// writing there.
func TestWritesSurviveAnEmptiedTmp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := ownTree(t, openTree(t, dir, Options{Durability: Process}))
	tree := openTree(t, dir, Options{Durability: Process})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); err != nil {
				t.Error(err)
			}
		}
	}()
	for emptying, emptied := true, 0; emptying; emptied++ {
		select {
		case <-done:
			emptying = false
		default:
			if emptied < 20 {
				check(t, o.emptyTemp())
			}
		}
	}
}

func TestTmpThatWasRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		tree := openTree(t, t.TempDir(), Options{Durability: durability})
		check(t, os.Remove(tree.TempDir()))
		submit(t, tree)
		check(t, os.RemoveAll(tree.TempDir()))
		submit(t, tree)
		// Without the storage itself, the write fails.
		check(t, os.RemoveAll(tree.Dir()))
		if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, fs.ErrNotExist) ||
			!strings.Contains(err.Error(), "submit g/j: ") {
			t.Errorf("without a storage: %v", err)
		}
		if _, err := os.Stat(tree.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the storage was made again: %v", err)
		}
	}
}

// fakeSyncs counts syncs, each of which begins and then waits for its outcome.
type fakeSyncs struct {
	begun   atomic.Int32
	outcome chan error
}

func (f *fakeSyncs) folder(t *testing.T) *syncFolder {
	t.Helper()
	d, err := openSyncFolder(t.TempDir(), Power)
	check(t, err)
	check(t, d.close())
	d.call = func() error {
		f.begun.Add(1)
		return <-f.outcome
	}
	return d
}

func TestOneSyncServesAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		syncs := &fakeSyncs{outcome: make(chan error)}
		d := syncs.folder(t)
		var early, late atomic.Int32
		go func() { check(t, d.sync()); early.Add(1) }()
		synctest.Wait()
		for range 500 {
			go func() { check(t, d.sync()); late.Add(1) }()
		}
		synctest.Wait()
		if syncs.begun.Load() != 1 || early.Load() != 0 {
			t.Fatalf("%d syncs run at once, %d calls returned before any ended", syncs.begun.Load(), early.Load())
		}
		syncs.outcome <- nil
		synctest.Wait()
		// The first sync began before the other calls, so it serves none of them.
		if syncs.begun.Load() != 2 || early.Load() != 1 || late.Load() != 0 {
			t.Fatalf("%d syncs begun, %d early and %d late calls returned", syncs.begun.Load(), early.Load(), late.Load())
		}
		syncs.outcome <- nil
		synctest.Wait()
		if syncs.begun.Load() != 2 || late.Load() != 500 {
			t.Fatalf("%d syncs for 501 calls, %d late calls returned", syncs.begun.Load(), late.Load())
		}
	})
}

func TestFailedSyncFailsItsBatchAndAllAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		syncs := &fakeSyncs{outcome: make(chan error)}
		d := syncs.folder(t)
		errs := make(chan error, 11)
		go func() { errs <- d.sync() }()
		synctest.Wait()
		for range 10 {
			go func() { errs <- d.sync() }()
		}
		synctest.Wait()
		syncs.outcome <- nil
		if err := <-errs; err != nil {
			t.Errorf("the sync before the failure: %v", err)
		}
		syncs.outcome <- syscall.EIO
		for range 10 {
			err := <-errs
			if failed, ok := errors.AsType[*SyncError](err); !ok || !errors.Is(err, syscall.EIO) || failed.Path != d.f.Name() {
				t.Errorf("the failed sync: %v", err)
			}
		}
		// The kernel reports a loss only once; the next sync would succeed and prove nothing.
		if err := d.sync(); !errors.Is(err, syscall.EIO) || syncs.begun.Load() != 2 {
			t.Errorf("after the failure: %v, %d syncs begun", err, syncs.begun.Load())
		}
	})
}

// TestNoCallGetsASyncFromBefore: under load, no call returns before a sync that began after it has
// ended.
func TestNoCallGetsASyncFromBefore(t *testing.T) {
	t.Parallel()
	d, err := openSyncFolder(t.TempDir(), Power)
	check(t, err)
	var begun, ended atomic.Int64
	d.call = func() error {
		n := begun.Add(1)
		defer ended.Store(n)
		return d.f.Sync()
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 50 {
				before := begun.Load()
				if err := d.sync(); err != nil {
					t.Error(err)
				}
				if ended.Load() <= before {
					t.Errorf("a call after sync %d began was served by sync %d", before, ended.Load())
				}
			}
		})
	}
	wg.Wait()
	check(t, d.close())
	if n := begun.Load(); n > 32*50 {
		t.Errorf("%d syncs for %d calls", n, 32*50)
	}
	if _, ok := errors.AsType[*SyncError](d.sync()); !ok {
		t.Error("a closed folder can be synced")
	}
}

func TestProcessDurabilityNeverSyncsFolders(t *testing.T) {
	t.Parallel()
	d, err := openSyncFolder(t.TempDir(), Process)
	check(t, err)
	d.call = func() error { t.Error("synced"); return nil }
	check(t, d.sync())
	check(t, d.close())
}

// TestFailedFileSyncIsASyncError: a failed sync of a file ends the daemon; a full disk only fails
// the submit.
func TestFailedFileSyncIsASyncError(t *testing.T) {
	t.Parallel()
	err := asSyncError("/s/record", &fs.PathError{Op: "sync", Path: "/s/tmp/.record1", Err: syscall.EIO})
	if failed, ok := errors.AsType[*SyncError](err); !ok || failed.Path != "/s/record" || !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed sync: %v", err)
	}
	err = asSyncError("/s/record", &fs.PathError{Op: "write", Path: "/s/tmp/.record1", Err: syscall.ENOSPC})
	if _, ok := errors.AsType[*SyncError](err); ok || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a failed write: %v", err)
	}
}

// TestCreateWithAndWithoutATemporaryName: a file system without unnamed files gives the same result
// with a temporary name.
func TestCreateWithAndWithoutATemporaryName(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		tree := openTree(t, t.TempDir(), Options{})
		tree.files.named.Store(named)
		check(t, os.RemoveAll(tree.TempDir())) // as a cleanup might do
		for _, synced := range []bool{false, true} {
			name := fmt.Sprintf("file-%t", synced)
			check(t, tree.files.create(name, []byte("whole"), synced))
			info, err := os.Lstat(filepath.Join(tree.Dir(), name))
			check(t, err)
			if info.Size() != 5 || info.Mode() != fileMode {
				t.Errorf("named %t, synced %t: %d bytes, mode %s", named, synced, info.Size(), info.Mode())
			}
			if err := tree.files.create(name, []byte("other"), synced); !errors.Is(err, fs.ErrExist) {
				t.Errorf("named %t, synced %t: a name that is taken: %v", named, synced, err)
			}
			if err := tree.files.create("nowhere/"+name, nil, synced); !errors.Is(err, fs.ErrNotExist) ||
				strings.Contains(err.Error(), "state-") {
				t.Errorf("named %t, synced %t: in a folder that is missing: %v", named, synced, err)
			}
		}
		wantNames(t, tree.TempDir())
	}
}
