package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func goneReason(t *testing.T, d *Dir[string]) string {
	t.Helper()
	err := d.Check()
	gone, ok := errors.AsType[*GoneError](err)
	if !ok {
		t.Fatalf("Check: %v, want a *GoneError", err)
	}
	if text := gone.Error(); !strings.Contains(text, gone.Dir) || !strings.Contains(text, "start again") {
		t.Errorf("message %q", text)
	}
	return gone.Reason
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(dir string) error
		want   string
	}{
		{"removed", os.RemoveAll, GoneRemoved},
		{"renamed", func(dir string) error {
			return os.Rename(dir, dir+"-elsewhere")
		}, GoneMoved},
		{"removed and made again", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		}, GoneReplaced},
		{"renamed and made again", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-elsewhere"), os.Mkdir(dir, 0o700))
		}, GoneReplaced},
		{"a file in its place", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		}, GoneReplaced},
		{"parent is a file", func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(dir)), os.WriteFile(filepath.Dir(dir), nil, 0o600))
		}, GoneUnreachable},
		{"symlink of the parent points elsewhere", func(dir string) error {
			parent := filepath.Dir(dir)
			return errors.Join(os.Rename(parent, parent+"-elsewhere"),
				os.MkdirAll(filepath.Join(parent+"-new", "jobs"), 0o700), os.Symlink(parent+"-new", parent))
		}, GoneReplaced},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "storage", "jobs")
			must(t, os.MkdirAll(dir, 0o700))
			d := openDir(t, dir, Options{})
			start(t, d)
			must(t, d.Check())
			must(t, test.change(dir))
			if reason := goneReason(t, d); reason != test.want {
				t.Errorf("reason %q, want %q", reason, test.want)
			}
		})
	}
}

func TestCheckMovedAwayAndBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	must(t, os.Mkdir(dir, 0o700))
	d := openDir(t, dir, Options{})
	start(t, d)
	must(t, os.Rename(dir, dir+"-elsewhere"))
	must(t, os.Rename(dir+"-elsewhere", dir))
	// The move is reported as a rescan; the watch ends with it.
	takeUntil(t, d, func(_ map[string]bool, rescan bool) bool { return rescan })
	if reason := goneReason(t, d); reason != GoneWatchLost {
		t.Errorf("reason %q, want %q", reason, GoneWatchLost)
	}
}
