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

func TestRenameNeverOverwrites(t *testing.T) {
	t.Parallel()
	byPath := func(rename func(from, to string) error) func(*os.File, string, string) error {
		return func(folder *os.File, from, to string) error {
			return rename(filepath.Join(folder.Name(), from), filepath.Join(folder.Name(), to))
		}
	}
	for name, rename := range map[string]func(folder *os.File, from, to string) error{
		"by path":        byPath(renameNew),
		"by a link":      byPath(linkNew),
		"of this system": renameFree,
		"portable":       func(folder *os.File, from, to string) error { return renamePortable(folder.Name(), from, to) },
	} {
		dir := t.TempDir()
		folder, err := os.Open(dir)
		check(t, err)
		for _, file := range []string{"a", "b"} {
			check(t, os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600))
		}
		check(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
		check(t, os.Symlink("nothing", filepath.Join(dir, "link")))
		for _, taken := range []string{"b", "folder", "link"} {
			if err := rename(folder, "a", taken); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "a") {
				t.Errorf("%s: rename over %s: %v", name, taken, err)
			}
		}
		if err := rename(folder, "none", "c"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: rename of nothing: %v", name, err)
		}
		check(t, rename(folder, "a", "c"))
		for file, want := range map[string]string{"b": "b", "c": "a"} {
			if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
				t.Errorf("%s: %s holds %q, %v", name, file, got, err)
			}
		}
		check(t, folder.Close())
		if err := renameFree(folder, "c", "d"); err == nil {
			t.Error("a closed folder can be used")
		}
	}
}

// TestOfTwoRenamesOneWins: the rename is the compare-and-swap of the state machine.
func TestOfTwoRenamesOneWins(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	targets := []State{Running, Paused}
	for round := range 2000 {
		errs := make([]error, len(targets))
		var wg sync.WaitGroup
		for i, to := range targets {
			wg.Go(func() { errs[i] = o.Move(id, Queued, to) })
		}
		wg.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], fs.ErrNotExist) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		check(t, o.Move(id, targets[winner], Queued))
	}
	wantNames(t, o.JobsDir(), MarkerName(id, Queued))
}

// TestOfTwoRenamesToOneNameOneWins: of two markers of one operation that race for one name, one
// keeps its old name.
func TestOfTwoRenamesToOneNameOneWins(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	for round := range 500 {
		check(t, o.RestoreMarker(id, Paused, testTime))
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, from := range []State{Queued, Paused} {
			wg.Go(func() { errs[i] = o.Move(id, from, Running) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		for i, from := range []State{Queued, Paused} {
			if errs[i] == nil {
				continue
			}
			if !errors.Is(errs[i], fs.ErrExist) {
				t.Fatalf("round %d: %v", round, errs[i])
			}
			check(t, o.RemoveName(MarkerName(id, from)))
		}
		check(t, o.Move(id, Running, Queued))
	}
}
