package statefs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The mark is that of the storage, by whatever path it is reached, and a copy is another storage.
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
	if _, err := MarkOf(filepath.Join(tree.Dir(), "missing")); err == nil {
		t.Error("a storage that is not there has a mark")
	}
}
