package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// TestIdentityOfAFile: a rename keeps an identity; a new file with the reused inode number of a
// removed one has another.
func TestIdentityOfAFile(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	path := func(name string) string { return filepath.Join(tree.JobsDir(), name) }
	identify := func(name string) files.Identity {
		t.Helper()
		identity, names, err := tree.Identify(name)
		if err != nil || names != 1 {
			t.Fatalf("%s has %d names: %v", name, names, err)
		}
		return identity
	}
	check(t, os.WriteFile(path("a"), nil, 0o600))
	first := identify("a")
	check(t, os.Rename(path("a"), path("b")))
	check(t, os.Chtimes(path("b"), time.Unix(1, 0), time.Unix(1, 0)))
	if again := identify("b"); !again.Same(first) || again != first {
		t.Errorf("%+v became %+v by a rename", first, again)
	}
	check(t, os.Link(path("b"), path("c")))
	if again, names, err := tree.Identify("c"); err != nil || names != 2 || !again.Same(first) {
		t.Errorf("a second name is %+v, with %d names: %v", again, names, err)
	}
	check(t, errors.Join(os.Remove(path("b")), os.Remove(path("c"))))
	if _, _, err := tree.Identify("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		check(t, os.WriteFile(path("d"), nil, 0o600))
		next := identify("d")
		check(t, os.Remove(path("d")))
		if next.Born.Equal(first.Born) && !first.Born.IsZero() && time.Now().Before(deadline) {
			continue // the clock of the file system has not advanced yet
		}
		if next.Inode == first.Inode && next.Same(first) != first.Born.IsZero() {
			t.Errorf("a new file is %+v, one that was removed %+v", next, first)
		}
		break
	}
	if !(files.Identity{Inode: 7}).Same(files.Identity{Inode: 7, Born: first.Born}) || (files.Identity{Inode: 7}).Same(files.Identity{Inode: 8}) {
		t.Error("without a time of birth the inode number decides")
	}
}

func TestIdentifyStaysInTheFolder(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	for _, name := range []string{"", "..", ".", "a/b", "../storage.json", "/etc/passwd"} {
		if _, _, err := tree.Identify(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
