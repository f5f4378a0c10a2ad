package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestPutFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, text := range []string{"first", "second, which is longer"} {
		size, err := PutFile(folder, "a/b/c.json", "m", strings.NewReader(text))
		check(t, err)
		data, err := os.ReadFile(filepath.Join(folder, "a/b/c.json"))
		if check(t, err); string(data) != text || size != int64(len(text)) {
			t.Errorf("it is %q of %d bytes", data, size)
		}
	}
	wantNames(t, filepath.Join(folder, "a/b"), "c.json")
}

// TestPutFileThatBreaks: the old file stays if the new one cannot be written.
func TestPutFileThatBreaks(t *testing.T) {
	t.Parallel()
	folder, broken := t.TempDir(), errors.New("broken")
	_, err := PutFile(folder, "c.json", "m", strings.NewReader("whole"))
	check(t, err)
	_, err = PutFile(folder, "c.json", "m", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(folder, "c.json")); err != nil || string(data) != "whole" {
		t.Errorf("it is %q, %v", data, err)
	}
	wantNames(t, folder, "c.json")
}

func TestPutFileStaysInside(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder, outside := filepath.Join(top, "in"), filepath.Join(top, "out")
	check(t, os.Mkdir(folder, 0o750))
	check(t, os.Mkdir(outside, 0o750))
	check(t, os.Symlink(outside, filepath.Join(folder, "way")))
	check(t, os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o600))
	check(t, os.Symlink(filepath.Join(outside, "kept"), filepath.Join(folder, "link")))
	for _, name := range []string{"../x", "/x", "", ".", "a//b", "a/../../x", "way/x", "way/../../x"} {
		if _, err := PutFile(folder, name, "m", strings.NewReader("no")); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	_, err := PutFile(folder, "link", "m", strings.NewReader("new"))
	check(t, err)
	wantNames(t, outside, "kept")
	if data, err := os.ReadFile(filepath.Join(outside, "kept")); err != nil || string(data) != "kept" {
		t.Errorf("the file behind the link is %q, %v", data, err)
	}
	if _, err := PutFile(filepath.Join(top, "none"), "x", "m", strings.NewReader("no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
