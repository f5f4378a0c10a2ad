package statefs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestMarkFollowsTheStorage: the mark is the same by every path to the storage, and a copy is
// another storage.
func TestMarkFollowsTheStorage(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "storage")
	mark := func(dir string) string {
		t.Helper()
		tree, err := Open(dir, Options{Durability: Process})
		check(t, err)
		o, err := Own(tree)
		check(t, err)
		defer func() {
			check(t, o.Release())
			check(t, tree.Close())
		}()
		if of, err := MarkOf(dir); err != nil || of != o.Mark() {
			t.Errorf("MarkOf says %q, %v, want %q", of, err, o.Mark())
		}
		return o.Mark()
	}
	first := mark(dir)
	if value, ok := strings.CutPrefix(first, MarkName+"="); !ok || len(value) < 20 {
		t.Errorf("the mark is %q", first)
	}
	if again := mark(dir); again != first {
		t.Errorf("the next daemon has %q, want %q", again, first)
	}
	link := filepath.Join(base, "link")
	check(t, os.Symlink(dir, link))
	if linked := mark(link); linked != first {
		t.Errorf("by a link it is %q, want %q", linked, first)
	}
	moved := filepath.Join(base, "moved")
	check(t, os.Rename(dir, moved))
	if got := mark(moved); got != first {
		t.Errorf("after a move it is %q, want %q", got, first)
	}
	copied := filepath.Join(base, "copy")
	check(t, exec.CommandContext(t.Context(), "cp", "-a", moved, copied).Run())
	if got := mark(copied); got == first {
		t.Error("a copy has the same mark")
	}
	if got := mark(filepath.Join(base, "other")); got == first {
		t.Error("another storage has the same mark")
	}
}

func TestMarkOfNothing(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	submit(t, tree)
	if mark, err := MarkOf(tree.Dir()); err != nil || mark != "" {
		t.Errorf("a storage that had no daemon has %q, %v", mark, err)
	}
	check(t, os.Remove(filepath.Join(tree.Dir(), storageFile)))
	if mark, err := MarkOf(tree.Dir()); err != nil || mark != "" {
		t.Errorf("without a storage.json it is %q, %v", mark, err)
	}
	if _, err := MarkOf(filepath.Join(tree.Dir(), "missing")); err == nil {
		t.Error("a storage that is not there has a mark")
	}
}

// TestFoldersOfTwoFileSystemsAreTwoPlaces: new file systems, or a snapshot and its origin, have
// folders with the same inode numbers.
func TestFoldersOfTwoFileSystemsAreTwoPlaces(t *testing.T) {
	t.Parallel()
	one, err := os.Stat("/proc")
	check(t, err)
	other, err := os.Stat("/sys")
	check(t, err)
	a, known := one.Sys().(*syscall.Stat_t)
	b, both := other.Sys().(*syscall.Stat_t)
	if !known || !both || a.Ino != b.Ino {
		t.Fatal("/proc and /sys have other numbers: nothing is tested")
	}
	if placeOf(one) == placeOf(other) {
		t.Errorf("both are %s", placeOf(one))
	}
}

// TestMarkIsKept: the next daemon must find the processes that this one started, whatever happens
// to storage.json in between.
func TestMarkIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(path string) error
		made  bool
	}{
		"left alone": {func(string) error { return nil }, false},
		"removed":    {os.Remove, true},
		"emptied":    {func(path string) error { return os.Truncate(path, 0) }, true},
		"of another storage": {func(path string) error {
			return os.WriteFile(path, []byte(`{"version":1,"next_sequence":5001,"mark":"X"}`), 0o640)
		}, true},
		"without a counter": {dropCounter, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := openTree(t, t.TempDir(), Options{Durability: Process})
			submit(t, tree)
			o, err := Own(tree)
			check(t, err)
			path := filepath.Join(tree.Dir(), storageFile)
			check(t, tc.spoil(path))
			if made, err := o.RestoreMark(); made != tc.made || err != nil {
				t.Errorf("made again: %t, %v, want %t", made, err, tc.made)
			}
			submit(t, tree)
			if mark, err := MarkOf(tree.Dir()); mark != o.Mark() || err != nil {
				t.Errorf("the mark is %q, %v, want %q", mark, err, o.Mark())
			}
			mark := o.Mark()
			check(t, o.Release())
			o, err = Own(tree)
			check(t, err)
			if o.Mark() != mark {
				t.Errorf("the next daemon has %q, want %q", o.Mark(), mark)
			}
			check(t, o.Release())
		})
	}
}

func dropCounter(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, regexp.MustCompile(`"next_sequence":\d+,`).ReplaceAll(data, nil), 0o640)
}
