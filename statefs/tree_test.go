package statefs

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
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

func TestOpenMakesTheLayout(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "storage")
	tree := openTree(t, dir, Options{})
	wantNames(t, dir, jobsDir, newDir, lanesDir, schedulesDir, operationsDir, definitionsDir, outboxDir, takenDir,
		corruptDir, keysDir, tmpDir)
	if tree.Durability() != Power || tree.Dir() != dir || tree.JobsDir() != filepath.Join(dir, jobsDir) {
		t.Errorf("opened %s with %s", tree.Dir(), tree.Durability())
	}
	id := foreignID(t, 1)
	day := filepath.Join(dir, operationsDir, "2025-11-26", id.String())
	if tree.LogPath(id) != day+".log" || tree.ItemsPath(id) != day+".items.ndjson" ||
		tree.ArtifactsPath(id) != day+".artifacts" {
		t.Errorf("paths %s %s %s", tree.LogPath(id), tree.ItemsPath(id), tree.ArtifactsPath(id))
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	check(t, os.WriteFile(file, nil, 0o600))
	check(t, os.Mkdir(filepath.Join(dir, "linked"), 0o750))
	check(t, os.Symlink(dir, filepath.Join(dir, "linked", jobsDir)))
	for _, test := range []struct {
		dir        string
		durability Durability
		want       string
	}{
		{file, "", "choose another directory with --storage"},
		{filepath.Join(file, "below"), "", "choose another directory with --storage"},
		{filepath.Join(dir, "linked"), "", "jobs is not a directory but a symbolic link; remove it"},
		{dir, "forever", `use "power" or "process"`},
	} {
		tree, err := Open(test.dir, Options{Durability: test.durability})
		if err == nil {
			t.Errorf("%s was opened", test.dir)
			check(t, tree.Close())
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// TestOpenMovesFilesInPlaceOfFolders: a file in the place of any folder goes to corrupt/, unless a
// daemon holds the storage, which moves it with its next sweep.
func TestOpenMovesFilesInPlaceOfFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folders := []string{
		jobsDir, newDir, lanesDir, schedulesDir, operationsDir, definitionsDir, outboxDir, takenDir, corruptDir, keysDir, tmpDir,
	}
	for _, name := range folders {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	var moved []string
	tree := openTree(t, dir, Options{Cleared: func(name, _ string) { moved = append(moved, name) }})
	slices.Sort(moved)
	if want := slices.Sorted(slices.Values(folders)); !slices.Equal(moved, want) {
		t.Errorf("moved %q, want %q", moved, want)
	}
	for _, name := range folders {
		found, err := filepath.Glob(filepath.Join(dir, corruptDir, "*_"+name))
		check(t, err)
		if len(found) != 1 {
			t.Fatalf("%s is %q in corrupt/", name, found)
		}
		content, err := os.ReadFile(found[0])
		check(t, err)
		if reason, err := os.ReadFile(found[0] + ".reason"); string(content) != name || err != nil ||
			!strings.Contains(string(reason), "it is a file, and a folder has its place here") {
			t.Errorf("%s in corrupt/ is %q because %q, %v", name, content, reason, err)
		}
	}
	owner, err := Own(tree)
	check(t, err)
	lanes := filepath.Join(dir, lanesDir)
	check(t, errors.Join(os.Remove(lanes), os.WriteFile(lanes, nil, 0o600)))
	openTree(t, dir, Options{})
	if info, err := os.Stat(lanes); err != nil || info.IsDir() {
		t.Errorf("another process moved a file of a daemon: %v", err)
	}
	if made, err := owner.RestoreFolders(); err != nil || len(made) != 0 {
		t.Errorf("the sweep made %q: %v", made, err)
	}
	if info, err := os.Stat(lanes); err != nil || !info.IsDir() {
		t.Errorf("the daemon did not make the folder again: %v", err)
	}
	check(t, owner.Release())
}

// files.RemoveFolder does not open a fifo that has taken the place of the folder above, which would last until a writer
// opens it too.
func TestRemoveFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	day, run := filepath.Join(dir, "day"), filepath.Join(dir, "day", "run")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(run, "a"), 0o750), os.WriteFile(filepath.Join(day, "log"), nil, 0o600), files.RemoveFolder(run),
		os.Remove(filepath.Join(day, "log")), files.RemoveFolder(run), os.Remove(day), files.RemoveFolder(run),
		unix.Mkfifo(day, 0o600), files.RemoveFolder(run),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantNames(t, dir, "day")
}

func TestGroupControl(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{GroupControl: true})
	for name, want := range map[string]fs.FileMode{
		jobsDir: 0o770 | fs.ModeSetgid, newDir: 0o770 | fs.ModeSetgid,
		lanesDir: 0o770 | fs.ModeSetgid, schedulesDir: 0o770 | fs.ModeSetgid, operationsDir: 0o750, tmpDir: 0o750,
	} {
		info, err := os.Stat(filepath.Join(tree.Dir(), name))
		check(t, err)
		if got := info.Mode() &^ fs.ModeDir; got != want {
			t.Errorf("%s has mode %s, want %s", name, got, want)
		}
	}
}

// TestTheNameOfADayIsSynced: a new day is a new name in operations/; without a sync, a power cut
// would lose the whole day.
func TestTheNameOfADayIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	counted := func() (*Tree, *atomic.Int32) {
		tree := openTree(t, dir, Options{Durability: Power})
		var count atomic.Int32
		tree.opsSync.SyncBy(func() error {
			count.Add(1)
			return nil
		})
		return tree, &count
	}
	first, syncs := counted()
	submit(t, first)
	if syncs.Load() != 1 {
		t.Errorf("%d syncs of operations/ for the first operation of a day, want 1", syncs.Load())
	}
	submit(t, first)
	if syncs.Load() != 1 {
		t.Errorf("%d syncs of operations/ after the second operation, want 1", syncs.Load())
	}
	// Another process cannot know whether the process that created the folder synced it.
	second, syncs := counted()
	submit(t, second)
	if syncs.Load() != 1 {
		t.Errorf("%d syncs of operations/ by another process, want 1", syncs.Load())
	}
}

func TestTheNameOfADayIsSyncedAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Power})
	tree.opsSync.SyncBy(func() error { return fs.ErrInvalid })
	for range 2 {
		if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); err == nil {
			t.Error("a submit whose day is not durable was acknowledged")
		}
	}
}

// TestManyDaysAtOnce uses more days than are kept open, while syncs of dropped folders run.
func TestManyDaysAtOnce(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Power})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 40 {
				if err := tree.syncDay(fmt.Sprintf("2025-%02d-%02d", 1+i%2, 1+n%28)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	tree.daysMu.Lock()
	defer tree.daysMu.Unlock()
	if len(tree.days) > maxOpenDays {
		t.Errorf("%d folders are kept open", len(tree.days))
	}
}

func TestCloseReleasesEveryDescriptor(t *testing.T) {
	dir := t.TempDir()
	open := func() {
		tree, err := Open(dir, Options{})
		check(t, err)
		o, err := Own(tree)
		check(t, err)
		rec := submit(t, tree)
		check(t, tree.Request(t.Context(), rec.ID, Cancel, nil))
		_, err = o.List()
		check(t, err)
		_, err = o.Sweep(nil)
		check(t, err)
		check(t, o.Release())
		check(t, tree.Close())
	}
	open()
	before := openDescriptors(t)
	for range 5 {
		open()
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

// openDescriptors counts the descriptors of this process. A test that uses it must not be parallel.
func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}
