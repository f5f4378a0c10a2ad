package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/client"
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
	s := serveOrderAt(t, filepath.Join(mount, "storage"), fullDiskJobs, "--commit", "files") // the journal has room
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
			fill(t, ballast) // the daemon may have removed a file
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

// byJournal reports whether the daemons of these tests commit by the journal, which has room on a full disk.
func byJournal() bool { return os.Getenv("JOBDIR_COMMIT") != string(statefs.CommitFiles) }

// A daemon that was killed on a full disk starts on it: it lists, streams and controls what there is, refuses submits,
// and gets well when there is room. No number of an event comes twice, also if only a subscriber has the event.
func TestDaemonStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	mount := tmpfs(t)
	s := serveOrderAt(t, filepath.Join(mount, "storage"), orderJobs)
	id := s.submit("named", 0)
	s.awaitTrace(1)
	ended := s.submit("first", 1)
	s.requestEffect("pause", id)
	s.requestEffect("resume", id) // the start is durable
	until(t, "the short one has ended", func() bool { return s.show(ended).Status == statefs.Completed })
	numbers := make(map[uint64]string)
	await := s.collectEvents(numbers)
	ballast := filepath.Join(mount, "ballast")
	t.Cleanup(func() { _ = os.Remove(ballast) }) // also after a failure the daemon ends with room
	fill(t, ballast)
	pause := func() {
		t.Helper()
		until(t, "the pause took effect", func() bool {
			_, answer := s.post("/api/v1/operations/" + id + "/pause?wait=1s")
			return strings.Contains(answer, `"took_effect":true`) && (strings.Contains(answer, `"durable":false`) || byJournal())
		})
	}
	pause()
	paused := 0
	await(func(e *client.Event) bool {
		if e.To == statefs.Paused {
			paused++
		}
		return paused == 2 // an event that is not on the disk
	})
	rounds := 3 // from the second one on after a daemon that never had room
	if byJournal() {
		rounds = 1 // each start takes a segment, and none can be made
	}
	for round := range rounds {
		s.kill()
		if round == 2 {
			signalKeepers(t, s.storage, syscall.SIGKILL)
		}
		fill(t, ballast)
		s.start()
		fill(t, ballast)
		if status, ready := s.get("/readyz"); status != http.StatusServiceUnavailable ||
			!strings.Contains(ready, "the disk is full") {
			t.Errorf("/readyz: %d %s", status, ready)
		}
		if _, list := s.get("/api/v1/operations"); !strings.Contains(list, id) || !strings.Contains(list, ended) {
			t.Errorf("the list %s", list)
		}
		if status, stream := s.get("/api/v1/operations/" + id + "/log"); status != http.StatusOK {
			t.Errorf("its log: %d %s", status, stream)
		}
		if status, refusal := s.post("/g/stay"); status != http.StatusInsufficientStorage {
			t.Errorf("a submit: %d %s", status, refusal)
		}
		until(t, "the resume took effect", func() bool {
			_, answer := s.post("/api/v1/operations/" + id + "/resume?wait=1s")
			return strings.Contains(answer, `"took_effect":true`) && (strings.Contains(answer, `"durable":false`) || byJournal())
		})
		pause()
	}
	await = s.collectEvents(numbers)
	s.must(os.Remove(ballast))
	until(t, "the daemon is well", func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK })
	done := s.submit("first", 2)
	await(func(e *client.Event) bool { return e.ID.String() == done })
	s.requestEffect("resume", id)
	s.clear()
}

// A daemon that starts on a full disk serves although a marker was removed while no daemon ran. It cancels that
// operation when there is room.
func TestMarkerRemovedBeforeAStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	mount := tmpfs(t)
	s := serveOrderAt(t, filepath.Join(mount, "storage"), orderJobs)
	removed, kept := s.submit("named", 0), s.submit("left", 0)
	s.awaitTrace(1)
	s.requestEffect("pause", kept)
	ballast := filepath.Join(mount, "ballast")
	t.Cleanup(func() { _ = os.Remove(ballast) }) // also after a failure the daemon ends with room
	s.kill()
	s.must(os.Remove(filepath.Join(s.storage, "jobs", removed+".running")))
	fill(t, ballast)
	s.start()
	if o := s.show(kept); o.Status != statefs.Paused {
		t.Errorf("on the full disk: %+v", o)
	}
	s.must(os.Remove(ballast))
	until(t, "it is cancelled", func() bool { return s.show(removed).Status == statefs.Cancelled })
	s.requestEffect("resume", kept)
	s.clear()
}

// A list of submits that is refused for want of disk space keeps no places in the queue.
func TestRefusalOnAFullDiskKeepsNoPlaces(t *testing.T) {
	t.Parallel()
	mount := tmpfs(t)
	s := serveOrderAt(t, filepath.Join(mount, "storage"), orderJobs)
	s.kill()
	s.args = append(s.args, "--max-queued=10")
	s.start()
	s.call(http.MethodPost, "/api/v1/lanes/all/pause", nil, nil)
	s.submit("stay", 0) // stores the definition of the job
	list := slices.Repeat([]orderEntry{entryOf("stay", 0)}, 9)
	data, err := json.Marshal(list)
	s.must(err)
	ballast := filepath.Join(mount, "ballast")
	t.Cleanup(func() { _ = os.Remove(ballast) }) // also after a failure the daemon ends with room
	fill(t, ballast)
	resp, err := http.Post(s.url+"/api/v1/operations", "application/json", bytes.NewReader(data))
	s.must(err)
	s.must(resp.Body.Close())
	if resp.StatusCode != http.StatusInsufficientStorage {
		t.Fatalf("on a full disk: %s", resp.Status)
	}
	s.must(os.Remove(ballast))
	if ids := s.submitList(list); len(ids) != len(list) {
		t.Errorf("%d operations with room", len(ids))
	}
	s.clear()
}

// collectEvents subscribes to the events of the daemon and adds them to the known ones by their numbers. The returned
// function waits for an event.
func (s *orderServer) collectEvents(known map[uint64]string) (await func(last func(*client.Event) bool)) {
	s.Helper()
	c, err := client.New(s.url)
	s.must(err)
	s.Cleanup(c.Close)
	next, stop := iter.Pull2(c.Events(s.Context(), url.Values{"after": {"0"}}))
	s.Cleanup(stop)
	return func(last func(*client.Event) bool) {
		s.Helper()
		for {
			e, err, ok := next()
			if err != nil || !ok {
				s.Fatal("the events ended", err)
			}
			if e.Type == "gap" {
				continue
			}
			if same := known[e.Seq]; same != "" && same != string(e.Raw) {
				s.Fatalf("event %d is %s and %s", e.Seq, same, e.Raw)
			}
			known[e.Seq] = string(e.Raw)
			if last(e) {
				return
			}
		}
	}
}

func (s *orderServer) get(path string) (status int, body string) { return s.do(http.MethodGet, path) }

func (s *orderServer) post(path string) (status int, body string) { return s.do(http.MethodPost, path) }

func (s *orderServer) do(method, path string) (status int, body string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, nil)
	s.must(err)
	resp, err := http.DefaultClient.Do(req)
	s.must(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, string(data)
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
	f, err := os.OpenFile(ballast, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
