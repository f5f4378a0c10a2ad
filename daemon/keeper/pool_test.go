//go:build linux

package keeper

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// roles are the other processes that the test binary can be, such as a keeper.
var roles = map[string]func(args []string) error{
	"keeper": playKeeper,
	"warden": playWarden,
}

func playWarden(orders []string) error { return Warden(context.Background(), orders, os.Stdin) }

// playKeeper is a keeper process. Its arguments are DIR IDLE PROTOCOL [SHUTDOWN-TIMEOUT
// ORPHANED-TIMEOUT].
func playKeeper(args []string) error {
	idle, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	protocol, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var patience [2]time.Duration
	for i, text := range args[3:] {
		if patience[i], err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	return Main(context.Background(), Options{
		shutdownReportTimeout: patience[0], orphanedReportTimeout: patience[1],
		Dir: args[0], Build: "build of the test", Durability: statefs.Process, Idle: idle, protocol: protocol,
		Warden: []string{"warden"},
	})
}

// site is a storage directory with keepers.
type site struct {
	dir     string
	options PoolOptions
	said    *lines
}

// lines collects log lines.
type lines struct {
	t    *testing.T
	text chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	select {
	case l.text <- string(p):
	default:
	}
	return len(p), nil
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteAt(t, t.TempDir())
}

func newSiteAt(t *testing.T, dir string) *site {
	t.Helper()
	for _, sub := range []string{"tmp", "operations/2025-11-26"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{dir: dir, said: &lines{t, make(chan string, 100)}}
	s.options = PoolOptions{
		Dir: dir, Executable: "/proc/self/exe", Program: program(dir, time.Millisecond, newestProtocol),
		Build:  "build of the test",
		Logger: slog.New(slog.NewTextHandler(s.said, nil)),
	}
	t.Cleanup(func() {
		// However the test went, its keepers end: they are idle, or have got SIGTERM.
		eventually(t, "the keepers end", func() bool {
			left, err := numbers(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range left {
				if _, alive, _ := clearNumber(dir, n); alive {
					return false
				}
			}
			return true
		})
	})
	return s
}

func program(dir string, idle time.Duration, protocol int) []string {
	return []string{"keeper of a test", "keeper", dir, idle.String(), strconv.Itoa(protocol)}
}

func (s *site) open(t *testing.T) *Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := Open(ctx, s.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// job is a fakejob under a key, with a report.
func (s *site) job(t *testing.T, n int, args ...string) *job {
	t.Helper()
	j := newJob(t, args...)
	j.Key = Key{Operation: fmt.Sprintf("test-job_2025-11-26_13-07-00_p1_r%d", n), Run: 1}
	j.Report = "operations/2025-11-26/" + j.Key.Operation + ".exit"
	return j
}

// run starts a job, which is ended at the end of the test.
func run(t *testing.T, p *Pool, j *job) Running {
	t.Helper()
	r, err := p.Start(t.Context(), j.Command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if notify.IsClosed(r.Done()) {
			return
		}
		if h, ok := r.(*remote); ok && h.link != nil && h.link.isGone() {
			return // a later pool has the command
		}
		r.End("cleanup")
		select {
		case <-r.Done():
		case <-time.After(patience):
			t.Errorf("process %d is not done", r.PID())
		}
	})
	return r
}

func exitOf(t *testing.T, r Running) Exit {
	t.Helper()
	select {
	case <-r.Done():
		return r.Exit()
	case <-time.After(patience):
		t.Fatalf("process %d is not done", r.PID())
		return Exit{}
	}
}

func TestPoolExit(t *testing.T) {
	t.Parallel()
	p := newSite(t).open(t)
	s := &site{}
	for name, c := range map[string]struct {
		number int
		args   []string
		code   int
		signal string
	}{
		"success": {1, []string{"-lines", "2"}, 0, ""},
		"code":    {2, []string{"-exit", "77"}, 77, ""},
		"SIGKILL": {3, []string{"-signal", "9"}, -1, "SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			j := s.job(t, c.number, c.args...)
			r := run(t, p, j)
			e := exitOf(t, r)
			if e.Code != c.code || e.Signal != c.signal || e.Cause != "" || e.Err != nil ||
				e.UserSeconds+e.SystemSeconds <= 0 || e.PeakMemory <= 0 {
				t.Errorf("exit is %+v", e)
			}
			var report *Report
			var err error
			eventually(t, "the exit report", func() bool {
				report, err = ReadReport(p.Dir, j.Report)
				return err == nil
			})
			if report.Key != j.Key || report.Code != c.code || report.Signal != c.signal {
				t.Errorf("report %+v", report)
			}
			if name == "success" && j.output(t) != "line 1\nline 2\n" {
				t.Errorf("output %q", j.output(t))
			}
			r.Acknowledge()
			if held := p.Commands(); len(held) != 0 {
				t.Errorf("held %v", held)
			}
		})
	}
}

func TestPoolStartIsIdempotent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	leave := newFIFO(t)
	j := s.job(t, 1, "-until", leave.path, "-exit", "5")
	first := run(t, p, j)
	if again := run(t, p, j); again.PID() != first.PID() {
		t.Errorf("the same client: PID %d, want PID %d", again.PID(), first.PID())
	}
	pid := first.PID()
	p.Close()
	p = s.open(t)
	first = run(t, p, j)
	if first.PID() != pid {
		t.Errorf("the next client: PID %d, want PID %d", first.PID(), pid)
	}
	other := j.Command
	other.Key.Run = 2
	second, err := p.Start(t.Context(), other)
	if err != nil || second.PID() == first.PID() {
		t.Fatalf("another run is the same command: %v", err)
	}
	leave.release(t)
	leave.release(t)
	for _, r := range []Running{first, second} {
		if e := exitOf(t, r); e.Code != 5 {
			t.Errorf("exit is %+v", e)
		}
	}
	if again := run(t, p, j); again.PID() != pid || exitOf(t, again).Code != 5 {
		t.Errorf("a start after the end is not told of it")
	}
}

func TestPoolSignals(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	ready := newFIFO(t)
	r := run(t, p, s.job(t, 1, "-on-term", "8", "-daemon", "-hang -tell "+ready.path, "-tell", ready.path, "-hang"))
	pids := []int{ready.pid(t), ready.pid(t)}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the command stops", func() bool { return state(t, r.PID()) == 'T' })
	if err := r.Continue(); err != nil {
		t.Error(err)
	}
	r.End("because")
	if e := exitOf(t, r); e.Code != 8 || e.Cause != "because" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
	for _, pid := range pids {
		if isAlive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if err := r.Stop(); err == nil {
		t.Error("stop after the end")
	}
}

func TestPoolRefusesWhatStartRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	for name, change := range map[string]func(c *Command){
		"no program":   func(c *Command) { c.Args = []string{"no-such-program"} },
		"no key":       func(c *Command) { c.Key = Key{} },
		"NUL":          func(c *Command) { c.Args = []string{"a\x00b"} },
		"other report": func(c *Command) { c.Report = "operations/../../x.exit" },
	} {
		j := s.job(t, 1)
		change(&j.Command)
		if _, err := p.Start(t.Context(), j.Command); err == nil || strings.Contains(err.Error(), "protocol") {
			t.Errorf("%s: %v", name, err)
		}
	}
	odd := s.job(t, 2, "-env", "ODD", "-env", "PWD")
	odd.Env = append(odd.Env, "ODD=\xff\x00"[:5]+"\n\"")
	odd.Dir = filepath.Join(odd.Dir, "by\xffte")
	if err := os.Mkdir(odd.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if e := exitOf(t, run(t, p, odd)); e.Code != 0 || !bytes.HasPrefix([]byte(odd.output(t)), []byte("ODD=\xff\n\"\n")) {
		t.Errorf("exit %+v, output %q", e, odd.output(t))
	}
}
