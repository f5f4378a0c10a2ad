//go:build linux

package keeper

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience bounds every wait for a real process; it is reached only when a test fails.
const patience = 2 * time.Minute

// longGrace is a grace period that no test waits for.
const longGrace = 10 * time.Minute

var fakejob string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "keeper-test-")
	if err != nil {
		panic(err)
	}
	fakejob = filepath.Join(dir, "fakejob")
	cmd := exec.Command("go", "build", "-trimpath", "-o", fakejob, "../../internal/fakejob")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in make build, so that the cached packages are reused
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build fakejob: %v\n%s", err, out))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // the result of the tests counts
		os.Exit(code)
	}))
}

// job is a fakejob for a test, with marks of its own.
type job struct {
	Command
	log string
}

func newJob(t *testing.T, args ...string) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{log: filepath.Join(dir, "log")}
	out, err := os.OpenFile(j.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	mark := []string{"JOBDIR_ID=" + t.Name(), "JOBDIR_STORAGE=" + dir}
	j.Command = Command{
		Args:   append([]string{fakejob}, args...),
		Dir:    dir,
		Env:    append([]string{"PATH=" + os.Getenv("PATH")}, mark...),
		Output: out,
		Grace:  longGrace,
		Mark:   mark,
	}
	t.Cleanup(func() {
		out.Close()
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v are left", left)
			_, _ = EndMarked(context.Background(), mark, time.Nanosecond) // the test has failed already
		}
	})
	return j
}

// modes are the two ways to signal a group after its leader has exited.
var modes = map[string]bool{"pidfd": true, "number": false}

func (j *job) start(t *testing.T) *Process { return j.startMode(t, groupByPidfd()) }

func (j *job) startMode(t *testing.T, byPidfd bool) *Process {
	t.Helper()
	p, err := launch(j.Command, directly)
	if err != nil {
		t.Fatal(err)
	}
	p.leader.byPidfd = byPidfd
	go p.supervise()
	t.Cleanup(func() {
		select {
		case <-p.Done():
		default:
			_ = unix.Kill(-p.PID(), unix.SIGKILL) // it may have ended just now
			p.End("cleanup")
			<-p.Done()
		}
	})
	return p
}

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(patience):
		t.Fatalf("process %d is not done", p.PID())
		return Exit{}
	}
}

func (j *job) output(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(j.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// marked lists the living processes that carry mark.
func marked(t *testing.T, mark []string) []int {
	t.Helper()
	line, err := ownAncestors()
	if err != nil {
		t.Fatal(err)
	}
	s := &sweep{marks: [][]string{mark}, skip: line, held: map[int]*target{}}
	defer s.close()
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for pid := range s.held {
		pids = append(pids, pid)
	}
	return pids
}

// fifo is a named pipe between a test and a fakejob.
type fifo struct {
	path string
	file *os.File
	text *bufio.Reader
}

func newFIFO(t *testing.T) *fifo {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// Open both ends, so that neither opening nor reading depends on which end is opened first.
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &fifo{path: path, file: file, text: bufio.NewReader(file)}
}

// pid waits for the next process that reports ready, and returns its PID.
func (f *fifo) pid(t *testing.T) int {
	t.Helper()
	if err := f.file.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	line, err := f.text.ReadString('\n')
	if err != nil {
		t.Fatalf("wait for a process to be ready: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (f *fifo) release(t *testing.T) {
	t.Helper()
	if _, err := f.file.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a state of the kernel that no event reports.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not seen", what)
		}
	}
}

func state(t *testing.T, pid int) byte {
	t.Helper()
	s, err := readStat(pid)
	if err != nil {
		t.Fatalf("state of process %d: %v", pid, err)
	}
	return s.state
}

func isAlive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.zombie()
}
