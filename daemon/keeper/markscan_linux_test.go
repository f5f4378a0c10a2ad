package keeper

import (
	"fmt"
	"os/exec"
	"sync"
	"testing"
)

// Concurrent queries get the same answers as single ones, in however many passes.
func TestMarkScanAnswersEachQuery(t *testing.T) {
	t.Parallel()
	mark := func(n int) []string { return []string{fmt.Sprintf("CENSUS_TEST=%s-%d", t.Name(), n), "SECOND=yes"} }
	for n := range 4 {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		cmd.Env = mark(n)
		if n == 3 {
			cmd.Env = cmd.Env[:1] // half of its marks are not enough
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // the test ends it
			_ = cmd.Wait()
		})
	}
	since, err := now()
	if err != nil {
		t.Fatal(err)
	}
	since -= 100 * ticksPerSecond // the processes above started a little earlier
	var c markScanner
	var group sync.WaitGroup
	for n := range 60 {
		group.Go(func() {
			if gone := c.noneMarked(mark(n), since); gone != (n >= 3) {
				t.Errorf("mark %d: clear %t", n, gone)
			}
		})
	}
	group.Wait()
	if len(c.waiting) > 0 {
		t.Errorf("left over: %d waiting", len(c.waiting))
	}
}

// A process that executes another program is examined again: its marks are those of that program's
// environment.
func TestMarkScanFollowsAnExec(t *testing.T) {
	t.Parallel()
	mark := []string{"EXEC_TEST=" + t.Name()}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `read line; exec env EXEC_TEST="$1" sleep 1000`, "sh", t.Name())
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	since, err := now()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the test ends it
		_ = cmd.Wait()
	})
	var c markScanner
	if !c.noneMarked(mark, since) {
		t.Error("it carries the mark from the start")
	}
	if _, err := input.Write([]byte("line\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark is found", func() bool { return !c.noneMarked(mark, since) })
	if !c.noneMarked([]string{"ANOTHER_TEST=" + t.Name()}, since) {
		t.Error("a mark is found that nothing carries")
	}
	if c.noneMarked(mark, since) {
		t.Error("the mark is forgotten with a search for another name")
	}
}
