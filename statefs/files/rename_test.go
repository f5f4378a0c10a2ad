package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
		"of this system": RenameFree,
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
		if err := RenameFree(folder, "c", "d"); err == nil {
			t.Error("a closed folder can be used")
		}
	}
}
