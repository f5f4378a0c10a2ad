package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wardenOf returns the PID of a keeper's warden, 0 when there is none.
func wardenOf(t *testing.T, keeper int) int {
	t.Helper()
	pids, err := numbersIn("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		st, err := readStat(pid)
		if err != nil || st.parent != keeper || st.zombie() {
			continue
		}
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
			bytes.Contains(args, []byte("warden")) {
			return pid
		}
	}
	return 0
}

// deserter makes a job start a process in a session of its own, which the parent-death signal does
// not reach. It returns its PID.
func (j *job) deserter(t *testing.T, p *Pool, script string) int {
	t.Helper()
	file := filepath.Join(j.Dir, "deserter")
	j.Args = []string{"sh", "-c", `setsid sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; ` + script + `' "` + file +
		`" & exec sleep 1000`}
	run(t, p, j)
	eventually(t, "the deserter is there", func() bool { _, err := os.Stat(file); return err == nil })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func killPID(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Without a daemon the warden ends the processes of a killed keeper, and no process of another
// keeper.
func TestWardenEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
		group  bool
	}{
		"heeds SIGTERM":         {script: "sleep 1000", grace: longGrace},
		"ignores SIGTERM":       {script: `trap "" TERM; sleep 1000; sleep 1000`, grace: time.Millisecond},
		"has cleared its marks": {script: "exec env -i sleep 1000", grace: longGrace, group: true},
		"is stopped":            {script: "kill -STOP $$; sleep 1000", grace: longGrace},
		"takes its time, but may": {
			script: `trap "touch $PWD/late; exit" TERM; while :; do sleep 0.05; done`,
			grace:  longGrace,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.group {
				needGroups(t)
			}
			if c.grace < DefaultGrace && testing.Short() {
				t.Skip("it takes the usual grace period; run without -short")
			}
			s, other := newSite(t), newSite(t)
			j := s.job(t, 1)
			j.Grace = c.grace
			pool := s.open(t)
			pid := j.deserter(t, pool, c.script)
			stranger := run(t, other.open(t), other.job(t, 1, "-hang"))
			keeper := pool.PIDs()[0]
			warden := wardenOf(t, keeper)
			if warden == 0 {
				t.Fatal("the keeper has no warden")
			}
			pool.Close() // from here on there is no daemon
			killPID(t, keeper)
			eventually(t, "the deserter is gone", func() bool { return !isAlive(pid) && len(marked(t, j.Mark)) == 0 })
			eventually(t, "the warden is gone", func() bool { return !isAlive(warden) })
			if strings.Contains(c.script, "late") {
				if _, err := os.Stat(filepath.Join(j.Dir, "late")); err != nil {
					t.Errorf("it was not given the time to end: %v", err)
				}
			}
			if !isAlive(stranger.PID()) {
				t.Error("a command of another keeper was ended")
			}
			if left := marked(t, j.Mark); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			if said, alive, err := clearNumber(s.dir, 1); alive || err != nil ||
				!strings.Contains(said, "that its warden has ended: ") && !c.group {
				t.Errorf("the next daemon reads %q, alive %v, error %v", said, alive, err)
			}
		})
	}
}

// A process that has cleared its environment, and stayed in the group or session of its leader, is
// found even without a control group.
func TestWardenFindsFamilies(t *testing.T) {
	t.Parallel()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	w, err := newWarden([]string{"warden"}, s.dir, slog.New(slog.DiscardHandler)) // it gets no orderGroup
	if err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	leader := exec.CommandContext(t.Context(), "sh", "-c", "env -i sleep 1000 & echo $!; exec sleep 1000")
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := leader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stranger := exec.CommandContext(t.Context(), "sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(leader.Start(), stranger.Start()); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	gone := w.enter(stranger.Process.Pid)
	w.leave(gone)
	w.enter(leader.Process.Pid)
	killPID(t, leader.Process.Pid)
	_ = leader.Wait() // it was killed
	if !isAlive(pid) {
		t.Fatal("it ended with its leader: nothing is tested")
	}
	if name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", w.child.pid)); err != nil || name != program {
		t.Errorf("the warden has %q as its program, %v", name, err)
	}
	_ = w.pipe.Close() // as if the keeper had died
	eventually(t, "it is gone", func() bool { return !isAlive(pid) })
	if _, err := wait4(w.child.pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
	w.child.close()
	if !isAlive(stranger.Process.Pid) {
		t.Error("a leader that had left the list was ended")
	}
	killPID(t, stranger.Process.Pid)
	_ = stranger.Wait() // it was killed
}

// The warden exits with a keeper that shuts down normally. A killed warden is restarted.
func TestWardenComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	j := s.job(t, 1)
	pid := j.deserter(t, p, "sleep 1000")
	keeper := p.PIDs()[0]
	first := wardenOf(t, keeper)
	killPID(t, first)
	var second int
	eventually(t, "another warden comes", func() bool {
		second = wardenOf(t, keeper)
		return second != 0 && second != first
	})
	p.Close()
	killPID(t, keeper)
	eventually(t, "the deserter is gone", func() bool { return !isAlive(pid) && len(marked(t, j.Mark)) == 0 })

	p = s.open(t)
	exitOf(t, run(t, p, s.job(t, 2)))
	keeper = p.PIDs()[0]
	warden := wardenOf(t, keeper)
	p.Retire()
	p.Close()
	eventually(t, "the keeper is gone", func() bool { return !isAlive(keeper) })
	eventually(t, "its warden is gone", func() bool { return warden != 0 && !isAlive(warden) })
}

// SIGTERM to every process, as at the shutdown of a machine, does not end the warden before the
// keeper.
func TestWardenIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	j := s.job(t, 1)
	pid := j.deserter(t, p, "sleep 1000")
	keeper := p.PIDs()[0]
	if err := unix.Kill(wardenOf(t, keeper), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.Close()
	killPID(t, keeper)
	eventually(t, "the deserter is gone", func() bool { return !isAlive(pid) && len(marked(t, j.Mark)) == 0 })
}

// Without a shell, the program itself waits.
func TestWardenWithoutAShell(t *testing.T) {
	s := newSite(t)
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	p := s.open(t)
	j := s.job(t, 1)
	j.Env[0] = "PATH=" + path
	pid := j.deserter(t, p, "sleep 1000")
	keeper := p.PIDs()[0]
	warden := wardenOf(t, keeper)
	if name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", warden)); err != nil || strings.Contains(name, "sh") {
		t.Fatalf("the warden is %q, %v", name, err)
	}
	p.Close()
	killPID(t, keeper)
	eventually(t, "the deserter is gone", func() bool { return !isAlive(pid) && len(marked(t, j.Mark)) == 0 })
}
