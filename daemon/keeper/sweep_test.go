//go:build linux

package keeper

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A grandchild that ignores SIGTERM proves that SIGKILL follows. A grandchild that obeys it
// proves that nothing waits for the grace period.
var grandchildren = map[string]struct {
	onTerm string
	grace  time.Duration
	said   string
}{
	"polite":          {"0", longGrace, "terminated\n"},
	"by default":      {"-", longGrace, ""},
	"ignores SIGTERM": {"ignore", 20 * time.Millisecond, ""},
}

func flagsOf(onTerm, tell string) string {
	if onTerm == "-" {
		return "-hang -tell " + tell
	}
	return "-hang -on-term " + onTerm + " -tell " + tell
}

func TestRestOfGroupAfterExit(t *testing.T) {
	t.Parallel()
	for name, c := range grandchildren {
		for mode, byPidfd := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				ready, leave := newFIFO(t), newFIFO(t)
				j := newJob(t, "-child", flagsOf(c.onTerm, ready.path), "-until", leave.path, "-exit", "6")
				j.Grace = c.grace
				p := j.startMode(t, byPidfd)
				grandchild := ready.pid(t)
				leave.release(t)
				if e := wait(t, p); e.Code != 6 || e.Cause != "" || e.Err != nil {
					t.Errorf("exit is %+v", e)
				}
				if isAlive(grandchild) {
					t.Errorf("grandchild %d is alive", grandchild)
				}
				if got := j.output(t); got != c.said {
					t.Errorf("output is %q, want %q", got, c.said)
				}
			})
		}
	}
}

func TestEndOfTree(t *testing.T) {
	t.Parallel()
	for name, c := range grandchildren {
		for mode, byPidfd := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				ready := newFIFO(t)
				flags := flagsOf(c.onTerm, ready.path)
				j := newJob(t, "-on-term", "8", "-child", flags, "-daemon", flags, "-daemon", flags, "-tell", ready.path, "-hang")
				j.Grace = c.grace
				p := j.startMode(t, byPidfd)
				pids := []int{ready.pid(t), ready.pid(t), ready.pid(t), ready.pid(t)}
				p.End("test")
				if e := wait(t, p); e.Cause != "test" || e.Err != nil {
					t.Errorf("exit is %+v", e)
				}
				for _, pid := range pids {
					if isAlive(pid) {
						t.Errorf("process %d of %v is alive", pid, pids)
					}
				}
			})
		}
	}
}

func TestDaemonIsOutOfTheGroup(t *testing.T) {
	t.Parallel()
	ready := newFIFO(t)
	p := newJob(t, "-daemon", "-hang -tell "+ready.path, "-hang").start(t)
	daemon := ready.pid(t)
	s, err := readStat(daemon)
	if err != nil {
		t.Fatal(err)
	}
	if s.group == p.PID() || s.parent == p.PID() {
		t.Errorf("the daemon has group %d and parent %d", s.group, s.parent)
	}
	if err := unix.Kill(daemon, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.End("a stopped daemon is continued, to act on SIGTERM")
	if e := wait(t, p); e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
}

func TestScanOnExit(t *testing.T) {
	t.Parallel()
	for name, scan := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, leave := newFIFO(t), newFIFO(t)
			j := newJob(t, "-daemon", "-hang -tell "+ready.path, "-until", leave.path)
			j.ScanOnExit = scan
			p := j.start(t)
			daemon := ready.pid(t)
			leave.release(t)
			if e := wait(t, p); e.Code != 0 || e.Err != nil {
				t.Errorf("exit is %+v", e)
			}
			if isAlive(daemon) == scan {
				t.Errorf("ScanOnExit %t: daemon alive is %t", scan, isAlive(daemon))
			}
			if _, err := EndMarked(t.Context(), j.Mark, longGrace); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEndWhileGroupIsLeft(t *testing.T) {
	t.Parallel()
	ready, leave := newFIFO(t), newFIFO(t)
	j := newJob(t, "-child", "-hang -on-term ignore -tell "+ready.path, "-daemon", "-hang -tell "+ready.path,
		"-until", leave.path)
	p := j.start(t)
	pids := map[int]bool{ready.pid(t): true, ready.pid(t): true}
	leave.release(t)
	eventually(t, "leader seen to have exited", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.exited
	})
	p.End("now also the daemon")
	for pid := range pids {
		if s, err := readStat(pid); err == nil && s.group == p.PID() {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	if e := wait(t, p); e.Code != 0 || e.Cause != "" || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
}

// bystander starts a process that the keeper did not start, with this environment.
func bystander(t *testing.T, env ...string) int {
	t.Helper()
	ready := newFIFO(t)
	cmd := exec.Command(fakejob, "-hang", "-tell", ready.path)
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()         // its exit status does not matter
	})
	return ready.pid(t)
}

func TestOthersAreNotTouched(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	id, storage := j.Mark[0], j.Mark[1]
	early := bystander(t, id, storage)
	earlyStat, err := readStat(early)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a later tick of the clock", func() bool {
		tick, err := now()
		return err == nil && tick > earlyStat.start
	})
	others := map[string]int{
		"no environment":   bystander(t),
		"first mark only":  bystander(t, id),
		"second mark only": bystander(t, storage, "PATH=/bin"),
		"longer value":     bystander(t, id+"1", storage),
		"shorter value":    bystander(t, id[:len(id)-1], storage),
		"longer name":      bystander(t, "X"+id, storage),
		"inside a value":   bystander(t, "A="+id, storage),
		"both in one":      bystander(t, id+" "+storage),
		"started before":   early,
	}
	ready := newFIFO(t)
	j.Args = append(j.Args, "-daemon", "-hang -tell "+ready.path, "-hang")
	p := j.start(t)
	ready.pid(t)
	p.End("test")
	if e := wait(t, p); e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
	for name, pid := range others {
		if !isAlive(pid) {
			t.Errorf("%s: process %d was ended", name, pid)
		}
	}
	// The process that started before the command carries the marks too, and EndMarked ends it.
	if n, err := EndMarked(t.Context(), j.Mark, longGrace); n != 1 || err != nil {
		t.Errorf("EndMarked ended %d, %v", n, err)
	}
	delete(others, "started before")
	for name, pid := range others {
		if !isAlive(pid) {
			t.Errorf("%s: process %d was ended by EndMarked", name, pid)
		}
	}
}

func TestEndMarked(t *testing.T) {
	t.Parallel()
	for name, c := range grandchildren {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, leave := newFIFO(t), newFIFO(t)
			flags := flagsOf(c.onTerm, ready.path)
			j := newJob(t, "-daemon", flags, "-daemon", flags, "-until", leave.path)
			p := j.start(t)
			pids := []int{ready.pid(t), ready.pid(t)}
			leave.release(t)
			wait(t, p)
			eventually(t, "what made them daemons is gone", func() bool { return len(marked(t, j.Mark)) == 2 })
			n, err := EndMarked(t.Context(), j.Mark, c.grace)
			if n != 2 || err != nil {
				t.Errorf("ended %d, %v", n, err)
			}
			for _, pid := range pids {
				if isAlive(pid) {
					t.Errorf("process %d is alive", pid)
				}
			}
		})
	}
}

func TestEndStrays(t *testing.T) {
	t.Parallel()
	const id = "JOBDIR_ID=test-script_2025-11-26_13-07-00_p5_r4"
	mark := "JOBDIR_MARK=" + t.Name()
	stray := bystander(t, id, mark)
	others := map[string]int{
		"the mark alone":   bystander(t, mark),
		"an ID alone":      bystander(t, id),
		"no ID":            bystander(t, mark, "JOBDIR_ID=mine"),
		"an empty ID":      bystander(t, mark, "JOBDIR_ID="),
		"a longer mark":    bystander(t, id, mark+".1"),
		"ID of other name": bystander(t, mark, "X"+id),
	}
	if n, err := EndStrays(t.Context(), mark, longGrace); n != 1 || err != nil {
		t.Errorf("ended %d, %v", n, err)
	}
	if isAlive(stray) {
		t.Error("the stray is alive")
	}
	for name, pid := range others {
		if !isAlive(pid) {
			t.Errorf("%s: the process was ended", name)
		}
	}
}

func TestEndMarkedIsCancelled(t *testing.T) {
	t.Parallel()
	ready := newFIFO(t)
	j := newJob(t, "-hang", "-on-term", "ignore", "-tell", ready.path)
	j.Grace = time.Nanosecond
	p := j.start(t)
	ready.pid(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := EndMarked(ctx, j.Mark, longGrace); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended %d, %v", n, err)
	}
	p.End("test")
	wait(t, p)
}

func TestEndMarkedRefuses(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string][]string{"nothing": nil, "no value": {"A=1", "B"}, "no name": {"=1"}} {
		if _, err := EndMarked(t.Context(), mark, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := EndMarked(t.Context(), []string{"A=1"}, -1); err == nil {
		t.Error("negative grace: no error")
	}
}

func TestOwnAncestorsAreSpared(t *testing.T) {
	t.Parallel()
	line, err := ownAncestors()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{os.Getpid(), os.Getppid(), 1} {
		if !line[pid] {
			t.Errorf("process %d is not in %v", pid, line)
		}
	}
}
