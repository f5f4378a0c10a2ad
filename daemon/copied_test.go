package daemon

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A storage that is copied while its daemon runs is independent: running operations start again in
// the copy, paused ones stay paused, ended ones stay ended, and the processes of the original are
// not touched. The next operation gets an ID that is new in the copy.
func TestCopiedStorage(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	ended := b.submit("argv", `{}`)
	b.awaitEnd(ended)
	running, paused := b.submit("script", script("echo $$; exec sleep 1000")),
		b.submit("script", script("echo $$; exec sleep 1000"))
	var pids []string
	for _, id := range []statefs.ID{running, paused} {
		b.await("the command runs", func() bool {
			_, err := b.tree.OpenLog(id)
			return err == nil && strings.HasSuffix(b.log(id), "\n")
		})
		pids = append(pids, strings.TrimSpace(b.log(id)))
	}
	b.touch(paused, statefs.Pause)
	b.awaitState(paused, statefs.Paused)

	dir := b.dir + "-copy"
	must(t, exec.CommandContext(t.Context(), "cp", "-a", b.dir, dir).Run())
	c := prepareAt(t, dir, commandJobs, nil)
	c.start()
	c.await("the copy runs it again", func() bool { return strings.Count(c.log(running), "\n") == 3 })
	if lines := strings.Split(c.log(running), "\n"); lines[0] != pids[0] || lines[1] != "  Run 2 begins." ||
		lines[2] == pids[0] {
		t.Errorf("log in the copy %q", lines)
	}
	if !c.exists(statefs.MarkerName(paused, statefs.Paused)) {
		t.Error("what was paused is not in the copy")
	}
	if rec, err := c.tree.ReadRecord(ended); err != nil || rec.Result != statefs.Success {
		t.Errorf("what had ended: %v", err)
	}
	for _, pid := range pids {
		if state := processState(t, pid); state == "Z" || state == "X" {
			t.Errorf("process %s of the first storage was ended", pid)
		}
	}
	if again := c.submit("argv", `{}`); again.Sequence() <= paused.Sequence() {
		t.Errorf("the copy gave out %s", again)
	}
}
