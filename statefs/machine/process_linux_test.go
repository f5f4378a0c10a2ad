package machine

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is a program that lives until it is killed.
type process struct {
	cmd    *exec.Cmd
	output io.Reader
}

func start(t *testing.T) process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // an error if the test has killed it
	})
	_, err = io.WriteString(stdin, "ready\n")
	check(t, err)
	_, err = io.ReadFull(stdout, make([]byte, len("ready\n")))
	check(t, err)
	return process{cmd, stdout}
}

// kill returns when the kernel has closed the files of the process, which is a zombie then.
func (p process) kill(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Kill())
	if rest, err := io.ReadAll(p.output); err != nil || len(rest) > 0 {
		t.Errorf("it said %q, %v", rest, err)
	}
}

func TestProcessStart(t *testing.T) {
	t.Parallel()
	const slack = 2 * time.Second // the kernel counts from a boot time in whole seconds
	before := time.Now()
	child := start(t)
	at, alive, err := ProcessStart(child.cmd.Process.Pid)
	check(t, err)
	if !alive || at.Before(before.Add(-slack)) || at.After(time.Now().Add(slack)) {
		t.Errorf("a process started after %s counts as started at %s, alive %t", before, at, alive)
	}
	// Ended and not waited for: a zombie.
	child.kill(t)
	for alive {
		_, alive, err = ProcessStart(child.cmd.Process.Pid)
		check(t, err)
	}
	if _, alive, err := ProcessStart(os.Getpid()); !alive || err != nil {
		t.Errorf("this process: alive %t, %v", alive, err)
	}
	if _, alive, err := ProcessStart(1); !alive || err != nil {
		t.Errorf("the first process: alive %t, %v", alive, err)
	}
	for _, pid := range []int{-1, 0, 1 << 30} {
		if _, alive, err := ProcessStart(pid); alive || err != nil {
			t.Errorf("process %d: alive %t, %v", pid, alive, err)
		}
	}
}

func TestExiting(t *testing.T) {
	t.Parallel()
	child := start(t)
	for pid, want := range map[int]bool{os.Getpid(): false, 1: false, child.cmd.Process.Pid: false, 1 << 30: true} {
		if got := Exiting(pid); got != want {
			t.Errorf("process %d is dying: %t", pid, got)
		}
	}
	child.kill(t)
	if !Exiting(child.cmd.Process.Pid) { // its files are closed by now
		t.Error("a process that was killed is not dying")
	}
}

func TestExitFlags(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]bool{
		"Name:\ta\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true,
		"Name:\ta\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n": true,
		"Name:\ta\nSigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\n": false,
		"SigBlk:\t0000000000000100\n":                                      false,
		"SigPnd:\tnonsense\n":                                              false,
		"":                                                                 false,
	} {
		if got := killPending([]byte(status)); got != want {
			t.Errorf("SIGKILL is pending: %t in %q", got, status)
		}
	}
	for rest, want := range map[string]bool{
		"S 1 2 3 0 -1 4194560": false, "S 1 2 3 0 -1 4194564": true, "R 1 2 3 0 -1 4195328": true,
		"Z 1 2 3 0 -1 4194304": true, "S 1 2": false, "S 1 2 3 0 -1 x": false,
	} {
		stat := fmt.Sprintf("7 (a) Z) %s %s", rest, strings.Repeat("0 ", 20))
		if rest == "S 1 2" {
			stat = "7 (a) Z) " + rest
		}
		if got := exitFlagged([]byte(stat)); got != want {
			t.Errorf("ending: %t in %q", got, stat)
		}
	}
}

// TestHolderOfAFolderWithTheSameNumber: a lock on a folder of another file system with the same
// inode number does not count.
func TestHolderOfAFolderWithTheSameNumber(t *testing.T) {
	t.Parallel()
	proc, err := os.Open("/proc")
	check(t, err)
	sys, err := os.Open("/sys")
	check(t, err)
	defer func() {
		check(t, proc.Close())
		check(t, sys.Close())
	}()
	check(t, unix.Flock(int(sys.Fd()), unix.LOCK_EX))
	if pid := LockHolder(sys); pid != os.Getpid() {
		t.Errorf("the holder of /sys is %d, want %d", pid, os.Getpid())
	}
	if pid := LockHolder(proc); pid != 0 {
		t.Errorf("the holder of /proc is %d", pid)
	}
	info, err := sys.Stat()
	check(t, err)
	if !hasLocked(os.Getpid(), info) {
		t.Error("the lock is not found by the open file")
	}
	if info, err = proc.Stat(); err != nil || hasLocked(os.Getpid(), info) {
		t.Errorf("an open file is taken for a locked one, %v", err)
	}
}
