package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s holds %q, want %q", filepath.Base(dir), got, want)
	}
}

// newWriter returns a Writer of a new directory.
func newWriter(t *testing.T, durable bool) (dir string, w *Writer) {
	t.Helper()
	dir = t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o750))
	return dir, NewWriter(dir, "tmp", durable, nil)
}

func TestReplaceGivesANewFileEachTime(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		dir, w := newWriter(t, durable)
		path := filepath.Join(dir, "file")
		var before fs.FileInfo
		var held *os.File // keeps the inode number of the first file from being reused
		for _, content := range []string{"one", "a longer two", ""} {
			check(t, w.Replace("file", []byte(content), false))
			got, err := os.ReadFile(path)
			check(t, err)
			after, err := os.Stat(path)
			check(t, err)
			if string(got) != content || after.Mode() != Mode || before != nil && os.SameFile(before, after) {
				t.Errorf("durable %t: %q with mode %s, same file %t", durable, got, after.Mode(), os.SameFile(before, after))
			}
			if held == nil {
				held, err = os.Open(path)
				check(t, err)
			}
			before = after
		}
		check(t, held.Close())
		wantNames(t, filepath.Join(dir, "tmp"))
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	t.Parallel()
	dir, w := newWriter(t, false)
	check(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	check(t, os.Symlink("nothing", filepath.Join(dir, "link")))
	check(t, w.Create("file", []byte("first"), false))
	for _, name := range []string{"file", "link", "folder"} {
		if err := w.Create(name, []byte("second"), false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create %s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "first" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	var wins atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := w.Create("raced", []byte("x"), false); err == nil {
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
	wantNames(t, filepath.Join(dir, "tmp"))
}

// fakeSyncs counts syncs. Each begins and then waits for its outcome.
type fakeSyncs struct {
	begun   atomic.Int32
	outcome chan error
}

func (f *fakeSyncs) folder(t *testing.T) *Folder {
	t.Helper()
	d, err := OpenFolder(t.TempDir(), true)
	check(t, err)
	check(t, d.Close())
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
		go func() { check(t, d.Sync()); early.Add(1) }()
		synctest.Wait()
		for range 500 {
			go func() { check(t, d.Sync()); late.Add(1) }()
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
		go func() { errs <- d.Sync() }()
		synctest.Wait()
		for range 10 {
			go func() { errs <- d.Sync() }()
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
		if err := d.Sync(); !errors.Is(err, syscall.EIO) || syncs.begun.Load() != 2 {
			t.Errorf("after the failure: %v, %d syncs begun", err, syncs.begun.Load())
		}
	})
}

// TestNoCallGetsASyncFromBefore: under load, no call returns before a sync that began after it has
// ended.
func TestNoCallGetsASyncFromBefore(t *testing.T) {
	t.Parallel()
	d, err := OpenFolder(t.TempDir(), true)
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
				if err := d.Sync(); err != nil {
					t.Error(err)
				}
				if ended.Load() <= before {
					t.Errorf("a call after sync %d began was served by sync %d", before, ended.Load())
				}
			}
		})
	}
	wg.Wait()
	check(t, d.Close())
	if n := begun.Load(); n > 32*50 {
		t.Errorf("%d syncs for %d calls", n, 32*50)
	}
	if _, ok := errors.AsType[*SyncError](d.Sync()); !ok {
		t.Error("a closed folder can be synced")
	}
}

func TestProcessDurabilityNeverSyncsFolders(t *testing.T) {
	t.Parallel()
	d, err := OpenFolder(t.TempDir(), false)
	check(t, err)
	d.call = func() error { t.Error("synced"); return nil }
	check(t, d.Sync())
	check(t, d.Close())
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
		dir, w := newWriter(t, true)
		w.named.Store(named)
		check(t, os.RemoveAll(filepath.Join(dir, "tmp"))) // as a cleanup might do
		for _, synced := range []bool{false, true} {
			name := fmt.Sprintf("file-%t", synced)
			check(t, w.Create(name, []byte("whole"), synced))
			info, err := os.Lstat(filepath.Join(dir, name))
			check(t, err)
			if info.Size() != 5 || info.Mode() != Mode {
				t.Errorf("named %t, synced %t: %d bytes, mode %s", named, synced, info.Size(), info.Mode())
			}
			if err := w.Create(name, []byte("other"), synced); !errors.Is(err, fs.ErrExist) {
				t.Errorf("named %t, synced %t: a name that is taken: %v", named, synced, err)
			}
			if err := w.Create("nowhere/"+name, nil, synced); !errors.Is(err, fs.ErrNotExist) ||
				strings.Contains(err.Error(), "state-") {
				t.Errorf("named %t, synced %t: in a folder that is missing: %v", named, synced, err)
			}
		}
		wantNames(t, filepath.Join(dir, "tmp"))
	}
}
