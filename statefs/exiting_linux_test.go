package statefs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestLockOfExitingProcess: a start waits for the lock of a daemon that was just killed and is
// still exiting.
func TestLockOfExitingProcess(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	for range 3 {
		daemon := start(t, "large", tree.Dir())
		if got := daemon.line(t); got != "ready" {
			t.Fatalf("the daemon says %q", got)
		}
		check(t, daemon.cmd.Process.Kill())
		owner, err := Own(tree)
		check(t, err)
		check(t, owner.Release())
		daemon.kill(t)
	}
}

func TestIsExiting(t *testing.T) {
	t.Parallel()
	child := start(t, "wait")
	child.line(t)
	for pid, want := range map[int]bool{os.Getpid(): false, 1: false, child.cmd.Process.Pid: false, 1 << 30: true} {
		if got := isExiting(pid); got != want {
			t.Errorf("process %d is dying: %t", pid, got)
		}
	}
	check(t, child.cmd.Process.Kill())
	for child.lines.Scan() {
		t.Errorf("it said %q", child.lines.Text())
	}
	if !isExiting(child.cmd.Process.Pid) { // its files are closed by now
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
