package cli_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// A pause on a full disk reports that the work is stopped, and that the pause is not durable until there is
// space.
func TestPauseOnAFullDiskTookEffect(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount the tmpfs of this test: run it as root, as in a container")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := serveOrderAt(t, filepath.Join(mount, "storage"), orderJobs)
	id := s.submit("named", 0)
	pid := s.awaitTrace(1)[0]
	type answer struct {
		State      statefs.State `json:"state"`
		TookEffect bool          `json:"took_effect"`
		Durable    *bool         `json:"durable"`
		Pending    bool          `json:"pending"`
	}
	request := func(ask, wait string) (a answer) {
		t.Helper()
		s.call(http.MethodPost, "/api/v1/operations/"+id+"/"+ask+"?wait="+wait, nil, &a)
		return a
	}
	for _, ask := range []string{"pause", "resume"} { // the start is durable after them
		if a := request(ask, "2m"); !a.TookEffect || a.Durable != nil {
			t.Fatalf("%s: %+v", ask, a)
		}
	}
	ballast := filepath.Join(mount, "ballast")
	t.Cleanup(func() { _ = os.Remove(ballast) }) // also after a failure the daemon ends with room
	fill(t, ballast)
	until(t, "the pause took effect", func() bool {
		a := request("pause", "1s")
		paused := a.State == statefs.Paused
		if a.TookEffect != paused || a.Pending == paused || paused && (a.Durable == nil || *a.Durable) {
			t.Fatalf("pause on a full disk: %+v", a)
		}
		return paused
	})
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	s.must(err)
	if !strings.Contains(string(data), ") T ") {
		t.Errorf("the command does not stand still: %s", data)
	}
	pause := exec.CommandContext(t.Context(), "jobdir", "pause", id, "--storage", s.storage, "--wait=1s")
	if out, err := pause.CombinedOutput(); err != nil || !strings.Contains(string(out), "could not make that durable") {
		t.Errorf("jobdir pause: %v\n%s", err, out)
	}
	s.must(os.Remove(ballast))
	until(t, "the pause is durable", func() bool {
		left, err := os.ReadDir(filepath.Join(s.storage, "taken"))
		s.must(err)
		return len(left) == 0
	})
	if a := request("resume", "2m"); !a.TookEffect || a.Durable != nil {
		t.Errorf("resume with room: %+v", a)
	}
	s.clear()
}

// fill writes a file until its disk is full.
func fill(t *testing.T, ballast string) {
	t.Helper()
	f, err := os.Create(ballast)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
