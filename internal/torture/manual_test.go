package torture

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// person is a storage with a daemon, used by a person with a shell.
type person struct {
	*yard
	rig    *rig
	daemon *daemon
}

func newPerson(t *testing.T, args ...string) *person {
	t.Helper()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	p := &person{yard: &yard{t: t, dir: r.dir}, rig: r}
	p.daemon = r.start(args...)
	t.Cleanup(func() {
		p.daemon.kill()
		if t.Failed() {
			t.Logf("the daemon said: %s", p.daemon.stderr)
		}
	})
	var err error
	p.tree, err = statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	t.Cleanup(func() { must(t, p.tree.Close()) })
	return p
}

// rm removes files of jobs/ like rm(1).
func (p *person) rm(pattern string) {
	p.t.Helper()
	files, err := filepath.Glob(p.jobs(pattern))
	must(p.t, err)
	for _, file := range files {
		must(p.t, os.Remove(file))
	}
}

// Removing all markers at once, while the folder remains, cancels all operations.
func TestRemovingAllMarkersCancelsEach(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	var ids []statefs.ID
	for range 5 {
		ids = append(ids, p.running())
	}
	p.rm("*.running")
	for _, id := range ids {
		p.wait("it is cancelled", p.ended(id, statefs.Cancelled, ""))
	}
	p.running() // the daemon continues
}

// draft makes an operation that another program is about to submit and that the daemon has already
// reconciled.
func (p *person) draft(job string, asks ...statefs.Action) *statefs.Record {
	p.t.Helper()
	rec, err := p.tree.Draft(statefs.Submission{Group: "t", Job: job})
	must(p.t, err)
	for _, ask := range asks {
		must(p.t, put(p.jobs(statefs.RequestName(rec.ID, ask)), ""))
	}
	p.running() // earlier events are handled by now
	return rec
}

// A request that precedes its operation is carried out before the work starts.
func TestRequestBeforeItsOperation(t *testing.T) {
	t.Parallel()
	p := newPerson(t, "--sweep-interval", "1h")
	cancelled, paused := p.draft("sleep", statefs.Cancel), p.draft("sleep", statefs.Pause)
	must(t, p.tree.Publish(cancelled))
	must(t, p.tree.Publish(paused))
	p.wait("it is cancelled", p.ended(cancelled.ID, statefs.Cancelled, ""))
	p.wait("it is paused", p.whole(paused.ID, statefs.Paused))
	for _, id := range []statefs.ID{cancelled.ID, paused.ID} {
		if rec, err := p.tree.ReadRecord(id); err != nil || rec.Starts > 0 {
			t.Errorf("%s began: %+v, %v", id, rec, err)
		}
		p.wait("the request is taken", p.gone(p.jobs(statefs.RequestName(id, statefs.Cancel))))
	}
}

// A control request under the path of another group answers where the live operation is.
func TestControlByAnotherGroup(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	s := &wrongSite{yard: p.yard, daemon: p.daemon}
	id := p.running().String()
	status, body := s.call("GET", "/u/control?action=pause&id="+id, "")
	if status != http.StatusNotFound || !strings.Contains(body, "/t/control") || strings.Contains(body, "finished") {
		t.Errorf("%d %s", status, body)
	}
	if status, body = s.call("GET", "/t/control?action=pause&id="+id, ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// resident returns the private resident memory of the daemon without the pages of the program, in KiB.
func (p *person) resident() (kib int) {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.daemon.cmd.Process.Pid))
	must(p.t, err)
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	_, err = fmt.Sscan(rest, &kib)
	must(p.t, err)
	return kib
}

// TestMemoryGoesBack opens thousands of streams and closes them: the daemon returns most of the memory that
// they took to the kernel.
func TestMemoryGoesBack(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	id := p.running()
	before := p.resident()
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	room := int(min(limit.Max, 1<<20)) // the daemon uses two descriptors for each reader, and reserves some
	readers := make([]net.Conn, min(prooftest.Count(2000, 8000, 8000), (room-room/8)/2-100))
	if len(readers) < 1100 {
		t.Skipf("this test opens thousands of connections, and the limit of open files is %d: raise it (ulimit -Hn 4096)",
			limit.Max)
	}
	for i := range readers {
		c, err := net.Dial("unix", filepath.Join(p.dir, "jobdir.sock"))
		must(t, err)
		defer c.Close()
		readers[i] = c
		_, err = fmt.Fprintf(c, "GET /api/v1/operations/%s/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
		must(t, err)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Fatalf("reader %d: %q, %v", i, line, err)
		}
	}
	full := p.resident()
	for _, c := range readers {
		must(t, c.Close())
	}
	p.wait("most of the memory has gone back", func() error {
		if now := p.resident(); now > before+(full-before)/3 {
			return fmt.Errorf("%d KiB before, %d with %d readers, %d after", before, full, len(readers), now)
		}
		return nil
	})
	figures.add(t, "readers that came and went, and most of their memory with them", len(readers))
}

// A replaced folder is not mistaken for one whose markers a person removed.
func TestReplacedFolderCancelsNothing(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	ids := []statefs.ID{p.running(), p.running()}
	must(t, os.Rename(p.jobs(""), filepath.Join(p.dir, "away")))
	must(t, os.Mkdir(p.jobs(""), 0o750))
	_, _ = p.daemon.Sweep(t.Context(), false) // its error is the end of the daemon
	within(t, "the daemon ends", p.daemon.ended)
	must(t, os.Remove(p.jobs("")))
	must(t, os.Rename(filepath.Join(p.dir, "away"), p.jobs("")))
	p.daemon = p.rig.start()
	for _, id := range ids {
		p.wait("it runs", p.state(id, statefs.Running))
	}
}
