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

// tmpfs mounts a file system of 8 MiB, which a test can fill.
func tmpfs(t *testing.T) (mount string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount the tmpfs of this test: run it as root, as in a container")
	}
	mount = t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return mount
}

// fullDiskJobs adds a job with an optional step, which its requests concern too.
const fullDiskJobs = orderJobs + `
---
group: g
name: steps
steps:
  - {name: first, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
  - {name: side, optional: true, run: [sh, -c, 'echo $$ >> "$1"; exec sleep 600', sh, TRACE]}
`

// A pause, a resume and a cancel on a full disk report what holds for the work, and that it is not durable until
// there is space.
func TestRequestsOnAFullDiskTookEffect(t *testing.T) {
	t.Parallel()
	mount := tmpfs(t)
	s := serveOrderAt(t, filepath.Join(mount, "storage"), fullDiskJobs)
	ids := []string{s.submit("named", 0)}
	s.awaitTrace(1)
	ids = append(ids, s.submit("steps", 0))
	pids := s.awaitTrace(3)
	type answer struct {
		State      statefs.State `json:"state"`
		TookEffect bool          `json:"took_effect"`
		Durable    *bool         `json:"durable"`
		Pending    bool          `json:"pending"`
	}
	request := func(id, ask, wait string) (a answer) {
		t.Helper()
		s.call(http.MethodPost, "/api/v1/operations/"+id+"/"+ask+"?wait="+wait, nil, &a)
		return a
	}
	for _, id := range ids {
		for _, ask := range []string{"pause", "resume"} { // the start is durable after them
			if a := request(id, ask, "2m"); !a.TookEffect || a.Durable != nil {
				t.Fatalf("%s: %+v", ask, a)
			}
		}
	}
	ballast := filepath.Join(mount, "ballast")
	t.Cleanup(func() { _ = os.Remove(ballast) }) // also after a failure the daemon ends with room
	fill(t, ballast)
	// effect waits until a request on the full disk took effect, and checks each answer on the way.
	effect := func(id, ask string, state statefs.State) {
		t.Helper()
		until(t, ask+" took effect", func() bool {
			a := request(id, ask, "1s")
			if a.TookEffect == a.Pending || a.TookEffect && (a.State != state || a.Durable == nil || *a.Durable) {
				t.Fatalf("%s on a full disk: %+v", ask, a)
			}
			return a.TookEffect
		})
	}
	jobdir := func(ask, id string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "jobdir", ask, id, "--storage", s.storage, "--wait=1s")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "could not make that durable") {
			t.Errorf("jobdir %s: %v\n%s", ask, err, out)
		}
	}
	for i, id := range ids {
		mine := pids[i : 1+2*i]
		effect(id, "pause", statefs.Paused)
		wantProcesses(t, "paused", "T", mine)
		effect(id, "resume", statefs.Running)
		wantProcesses(t, "resumed", "SR", mine)
		effect(id, "pause", statefs.Paused)
		jobdir("pause", id)
		effect(id, "resume", statefs.Running)
		effect(id, "cancel", statefs.Running)
		jobdir("cancel", id)
		wantProcesses(t, "cancelled", "", mine)
	}
	s.must(os.Remove(ballast))
	until(t, "all of it is durable", func() bool {
		left, err := os.ReadDir(filepath.Join(s.storage, "taken"))
		s.must(err)
		return len(left) == 0
	})
	for _, id := range ids {
		if o := s.show(id); o.Status != statefs.Cancelled {
			t.Errorf("with room: %+v", o)
		}
	}
}

// wantProcesses checks the states of processes as the kernel names them; none means that they are gone.
func wantProcesses(t *testing.T, when, states string, pids []int) {
	t.Helper()
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(data), ") ")
		if gone := err != nil || strings.HasPrefix(rest, "Z"); gone != (states == "") ||
			!gone && !strings.Contains(states, rest[:1]) {
			t.Errorf("%s: process %d: %s, %v", when, pid, data, err)
		}
	}
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
