package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, most int64
		want       string
	}{{0, 100, "0123456789"}, {0, 3, "789"}, {6, 100, "6789"}, {6, 3, "789"}, {10, 3, ""}, {11, 3, ""}} {
		end, written, err := ReadEnd(path, c.from, c.most)
		if err != nil || string(end) != c.want || written.IsZero() {
			t.Errorf("from %d at most %d: %q, written %v, %v, want %q", c.from, c.most, end, written, err, c.want)
		}
	}
	if _, _, err := ReadEnd(path+"2", 0, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := ReadEnd(filepath.Dir(path), 0, 3); !errors.Is(err, ErrIrregular) {
		t.Errorf("a folder: %v", err)
	}
}

// A new file and a new folder have their modes whatever the umask is, and neither takes the place of another.
func TestNewFileAndFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "above", "run")
	if err := MakeNewFolder(folder); err != nil {
		t.Fatal(err)
	}
	if err := MakeNewFolder(folder); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same folder again: %v", err)
	}
	file := filepath.Join(folder, "file")
	if err := WriteNew(file, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := WriteNew(file, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same file again: %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "text" {
		t.Errorf("it contains %q, %v", text, err)
	}
	for path, want := range map[string]fs.FileMode{folder: folderMode, file: Mode} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// A folder goes with everything in it, expected or not. What a link leads to stays.
func TestRemoveFolderWith(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(folder string) error{
		"expected":   func(folder string) error { return WriteNew(filepath.Join(folder, "file"), nil) },
		"empty":      func(string) error { return nil },
		"another":    func(folder string) error { return WriteNew(filepath.Join(folder, "other"), nil) },
		"folder":     func(folder string) error { return MakeFolder(filepath.Join(folder, "file", "below")) },
		"missing":    os.Remove,
		"file":       func(folder string) error { return errors.Join(os.Remove(folder), WriteNew(folder, nil)) },
		"not folder": func(folder string) error { return errors.Join(os.Remove(folder), unix.Mkfifo(folder, 0o600)) },
	} {
		folder := filepath.Join(t.TempDir(), "run")
		if err := errors.Join(MakeFolder(folder), fill(folder)); err != nil {
			t.Fatal(err)
		}
		if err := RemoveFolderWith(folder, "file", "result"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	linked, link := filepath.Join(t.TempDir(), "linked"), filepath.Join(t.TempDir(), "run")
	if err := errors.Join(MakeFolder(linked), WriteNew(filepath.Join(linked, "file"), nil), os.Symlink(linked, link)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveFolderWith(link, "file"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(linked, "file")); err != nil {
		t.Errorf("a file behind a link: %v", err)
	}
}
