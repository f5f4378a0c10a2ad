package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
				if err := tree.files.Replace("of-"+letter, []byte(content), false); err != nil {
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
		check(t, os.Remove(filepath.Join(tree.Dir(), tmpDir)))
		submit(t, tree)
		check(t, os.RemoveAll(filepath.Join(tree.Dir(), tmpDir)))
		submit(t, tree)
		// Without the storage itself, the write fails.
		check(t, os.RemoveAll(tree.Dir()))
		if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without a storage: %v", err)
		}
		if _, err := os.Stat(tree.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the storage was made again: %v", err)
		}
	}
}
