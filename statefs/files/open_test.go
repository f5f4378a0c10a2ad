package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
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
