package control

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A full disk, out of bytes or inodes, makes submits fail with the reason, which /readyz shows too. Submits work again
// as soon as there is space. Control works throughout.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this test mounts a tmpfs: run it as root")
	}
	fillBytes := func(t *testing.T, mount string) {
		f, err := os.Create(filepath.Join(mount, "ballast"))
		must(t, err)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		must(t, f.Close())
	}
	fillInodes := func(t *testing.T, mount string) {
		must(t, os.Mkdir(filepath.Join(mount, "ballast"), 0o700))
		var err error
		for i := 0; err == nil; i++ {
			err = os.WriteFile(filepath.Join(mount, "ballast", strconv.Itoa(i)), nil, 0o600)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		options string
		fill    func(*testing.T, string)
		full    string
	}{
		"bytes":  {"size=2m", fillBytes, "the disk is full"},
		"inodes": {"size=8m,nr_inodes=200", fillInodes, "all inodes of the file system are used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mount := t.TempDir()
			must(t, syscall.Mount("tmpfs", mount, "tmpfs", 0, test.options))
			t.Cleanup(func() { must(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
			r := setupAt(t, filepath.Join(mount, "storage"))
			live := r.submit().start()
			ready := func(status int, full string) {
				t.Helper()
				if a := r.get("/readyz"); a.status != status || a.json(t)["full"] != full {
					t.Errorf("/readyz: %d %s", a.status, a.body)
				}
			}
			ready(http.StatusOK, "")
			test.fill(t, mount)
			ready(http.StatusServiceUnavailable, test.full)
			r.problem(r.do("POST", "/testrouter/streaming01", ""), http.StatusInsufficientStorage,
				"The storage of the daemon is full: make room, then try again")
			if a := r.get(live.path("")); a.status != http.StatusOK {
				t.Errorf("a running operation: %d %s", a.status, a.body)
			}
			// A tmpfs counts a link as an inode; statefs tests requests without inodes.
			if a := r.do("POST", live.path("/pause"), ""); name == "bytes" && a.status != http.StatusAccepted {
				t.Errorf("pause: %d %s", a.status, a.body)
			}
			must(t, os.RemoveAll(filepath.Join(mount, "ballast")))
			ready(http.StatusOK, "")
			r.submit()
		})
	}
}
