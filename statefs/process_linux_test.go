package statefs

import (
	"os"
	"testing"
	"time"
)

func TestProcessStart(t *testing.T) {
	t.Parallel()
	before := time.Now()
	child := start(t, "wait")
	child.line(t)
	at, alive, err := processStart(child.cmd.Process.Pid)
	check(t, err)
	if !alive || at.Before(before.Add(-startSlack)) || at.After(time.Now().Add(startSlack)) {
		t.Errorf("a process started after %s counts as started at %s, alive %t", before, at, alive)
	}
	// Ended and not waited for: a zombie.
	check(t, child.cmd.Process.Kill())
	for child.lines.Scan() {
		t.Errorf("it said %q", child.lines.Text())
	}
	for alive {
		_, alive, err = processStart(child.cmd.Process.Pid)
		check(t, err)
	}
	if _, alive, err := processStart(os.Getpid()); !alive || err != nil {
		t.Errorf("this process: alive %t, %v", alive, err)
	}
	if _, alive, err := processStart(1); !alive || err != nil {
		t.Errorf("the first process: alive %t, %v", alive, err)
	}
	for _, pid := range []int{-1, 0, 1 << 30} {
		if _, alive, err := processStart(pid); alive || err != nil {
			t.Errorf("process %d: alive %t, %v", pid, alive, err)
		}
	}
}
