//go:build linux

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	roles["daemon"] = playDaemon
}

// playDaemon is a process that starts a command through a keeper, prints its PID, and waits to be
// killed. Its arguments are DIR REQUEST LOG.
func playDaemon(args []string) error {
	p, err := Open(context.Background(), PoolOptions{
		Dir: args[0], Executable: "/proc/self/exe",
		Program: program(args[0], time.Millisecond, newestProtocol), Build: "build of the test",
	})
	if err != nil {
		return err
	}
	var r request
	if err := json.Unmarshal([]byte(args[1]), &r); err != nil {
		return err
	}
	c := r.Start.Command
	c.Key, c.Dir = r.Key, string(r.Start.Dir)
	if c.Output, err = os.OpenFile(args[2], os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	started, err := p.Start(context.Background(), c)
	if err != nil {
		return err
	}
	fmt.Println(started.PID())
	select {}
}

// startElsewhere starts a job from a daemon process, and returns that process and the PID of the
// job.
func (s *site) startElsewhere(t *testing.T, j *job) (*exec.Cmd, int) {
	t.Helper()
	text, err := json.Marshal(request{Key: j.Key, Start: &order{Command: j.Command, Dir: []byte(j.Dir)}})
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "/proc/self/exe", "daemon", s.dir, string(text), j.log)
	daemon.Stderr = os.Stderr
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatalf("the daemon process said no PID: %v", err)
	}
	return daemon, pid
}

func kill(t *testing.T, daemon *exec.Cmd) {
	t.Helper()
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // it was killed
}

func TestCommandOutlivesItsDaemon(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	leave := newFIFO(t)
	j := s.job(t, 1, "-lines", "1", "-until", leave.path, "-exit", "9")
	daemon, pid := s.startElsewhere(t, j)
	kill(t, daemon)
	p := s.open(t)
	if held := p.Commands(); len(held) != 1 || held[0].PID != pid || held[0].Key != j.Key || held[0].Ended {
		t.Fatalf("held %+v, want PID %d", held, pid)
	}
	r := run(t, p, j)
	if r.PID() != pid {
		t.Errorf("PID %d, want %d", r.PID(), pid)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the command stops", func() bool { return state(t, pid) == 'T' })
	if err := r.Continue(); err != nil {
		t.Error(err)
	}
	leave.release(t)
	if e := exitOf(t, r); e.Code != 9 || e.Cause != "" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
}

// Without a daemon the keeper applies timeouts and grace periods, writes the report, and exits.
func TestKeeperAlone(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second // and enough for the command to say that it is ready
	for name, c := range map[string]struct {
		args    []string
		timeout time.Duration
		grace   time.Duration
		code    int
		signal  string
		timed   bool
	}{
		"exit":                {[]string{"-exit", "7"}, 0, longGrace, 7, "", false},
		"timeout":             {[]string{"-on-term", "8", "-hang"}, short, longGrace, 8, "", true},
		"timeout and SIGTERM": {[]string{"-hang"}, short, longGrace, -1, "SIGTERM", true},
		"timeout then SIGKILL": {
			[]string{"-on-term", "ignore", "-hang"},
			short, 20 * time.Millisecond,
			-1, "SIGKILL", true,
		},
		"timeout that is enough": {[]string{"-exit", "3"}, time.Hour, longGrace, 3, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			ready, leave := newFIFO(t), newFIFO(t)
			j := s.job(t, 1, append([]string{"-tell", ready.path}, c.args...)...)
			if c.args[0] == "-exit" {
				j.Args = append(j.Args, "-until", leave.path)
			}
			j.Grace, j.Timeout = c.grace, c.timeout
			daemon, _ := s.startElsewhere(t, j)
			ready.pid(t)
			kill(t, daemon)
			leave.release(t)
			var report *Report
			eventually(t, "the exit report", func() bool {
				var err error
				report, err = ReadReport(s.dir, j.Report)
				return err == nil
			})
			if report.Code != c.code || report.Signal != c.signal || report.TimedOut != c.timed ||
				report.Keeper == 0 || report.Boot == "" {
				t.Errorf("report %+v", report)
			}
			if left := marked(t, j.Mark); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			eventually(t, "the keeper ends", func() bool {
				left, err := filepath.Glob(filepath.Join(s.dir, "keeper-*"))
				return err == nil && len(left) == 0
			})
			r := run(t, s.open(t), j)
			if e := exitOf(t, r); r.PID() != 0 || e.Code != c.code || e.Signal != c.signal || e.TimedOut != c.timed {
				t.Errorf("a start after the keeper has ended is told %+v", e)
			}
			if err := r.Stop(); !errors.Is(err, ErrEnded) {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestReportOfAnotherRunIsIgnored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	j := s.job(t, 1, "-exit", "4")
	for name, text := range map[string]string{
		"empty": "", "half": `{"version":1,"id":"` + j.Key.Operation, "newer": `{"version":2,"id":"` + j.Key.Operation +
			`","run":2,"ended_at":"2025-11-26T13:07:00Z"}`,
		"of an earlier run": `{"version":1,"id":"` + j.Key.Operation +
			`","run":1,"code":5,"ended_at":"2025-11-26T13:07:00Z"}`,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, j.Report), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		j.Key.Run++
		again := run(t, p, j)
		if e := exitOf(t, again); e.Code != 4 {
			t.Errorf("%s: exit %+v", name, e)
		}
		again.Acknowledge()
	}
}

// When a keeper is killed, everything it has started ends: the kernel ends the leaders, the daemon
// the rest.
func TestKeeperIsKilled(t *testing.T) {
	t.Parallel()
	for name, grandchild := range map[string]string{
		"in the group":       "-child",
		"in its own session": "-daemon",
	} {
		for _, onTerm := range []string{"ignore", "0"} {
			t.Run(name+" on SIGTERM "+onTerm, func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				p := s.open(t)
				ready := newFIFO(t)
				j := s.job(t, 1, "-on-term", "ignore", "-tell", ready.path, grandchild, flagsOf(onTerm, ready.path), "-hang")
				j.Grace = 20 * time.Millisecond
				r := run(t, p, j)
				pids := []int{ready.pid(t), ready.pid(t)}
				bystander := exec.CommandContext(t.Context(), "sleep", "1000")
				if err := bystander.Start(); err != nil {
					t.Fatal(err)
				}
				keepers := p.PIDs()
				if len(keepers) != 1 {
					t.Fatalf("keepers %v", keepers)
				}
				if err := unix.Kill(keepers[0], unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if e := exitOf(t, r); !errors.Is(e.Err, ErrKeeperDied) || e.Code != -1 {
					t.Errorf("exit is %+v", e)
				}
				for _, pid := range pids {
					if isAlive(pid) {
						t.Errorf("process %d is alive", pid)
					}
				}
				if !isAlive(bystander.Process.Pid) {
					t.Error("a stranger was ended")
				}
				_ = bystander.Process.Kill() // the test ends it
				_ = bystander.Wait()
				j.Key.Run, j.Args = 2, []string{fakejob, "-exit", "6"}
				if e := exitOf(t, run(t, p, j)); e.Code != 6 {
					t.Errorf("the next run: %+v", e)
				}
			})
		}
	}
}

// Without a daemon the leaders die with their keeper all the same, and the next daemon finds a dead
// keeper.
func TestKeeperIsKilledAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ready := newFIFO(t)
	j := s.job(t, 1, "-on-term", "ignore", "-tell", ready.path, "-daemon", flagsOf("ignore", ready.path), "-hang")
	daemon, pid := s.startElsewhere(t, j)
	pids := []int{ready.pid(t), ready.pid(t)}
	kill(t, daemon)
	lock, err := os.ReadFile(filepath.Join(s.dir, lockName(1)))
	if err != nil {
		t.Fatal(err)
	}
	var keeper int
	if _, err := fmt.Sscan(string(lock), &keeper); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader dies", func() bool { return !isAlive(pid) })
	p := s.open(t)
	if held := p.Commands(); len(held) != 0 {
		t.Errorf("held %v", held)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "keeper-*")); len(left) != 0 {
		t.Errorf("files %v are left", left)
	}
	if n, err := EndMarked(t.Context(), j.Mark, 20*time.Millisecond, p.PIDs()...); n > 1 || err != nil {
		// With a control group, the next daemon has ended it already.
		t.Errorf("%d ended, %v", n, err)
	}
	for _, pid := range pids {
		if isAlive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
}

// SIGTERM to a keeper ends its commands in order, with CauseKeeperEnds.
func TestKeeperIsToldToEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	ready := newFIFO(t)
	j := s.job(t, 1, "-on-term", "8", "-tell", ready.path, "-hang")
	r := run(t, p, j)
	ready.pid(t)
	if err := unix.Kill(p.PIDs()[0], unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := exitOf(t, r); e.Code != 8 || e.Cause != CauseKeeperEnds {
		t.Errorf("exit is %+v", e)
	}
	eventually(t, "the keeper ends", func() bool { return len(p.PIDs()) == 0 })
	if report, err := ReadReport(s.dir, j.Report); err != nil || report.Cause != CauseKeeperEnds {
		t.Errorf("report %+v, %v", report, err)
	}
}

// EndMarked spares the commands of a living keeper.
func TestEndMarkedSpares(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	ready := newFIFO(t)
	j := s.job(t, 1, "-daemon", "-hang -tell "+ready.path, "-tell", ready.path, "-hang")
	r := run(t, p, j)
	pids := []int{ready.pid(t), ready.pid(t)}
	if n, err := EndMarked(t.Context(), j.Mark, time.Millisecond, p.PIDs()...); n != 0 || err != nil {
		t.Errorf("%d ended, %v", n, err)
	}
	for _, pid := range append(pids, r.PID()) {
		if !isAlive(pid) {
			t.Errorf("process %d was ended", pid)
		}
	}
}
