package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// TestOverflowLosesNoRequest drops all three requests of 7,000 live operations while the daemon's
// process is stopped: more events than the kernel's queue holds, so that it overflows. Every
// operation must end as cancelled. With -short there are 200 operations, and foreign files whose
// events fill the queue before the requests come.
func TestOverflowLosesNoRequest(t *testing.T) {
	live, foreign := prooftest.Count(200, 7000, 7000), prooftest.Count(10_000, 0, 0)
	b := prepare(t, handlerJobs, testHandlers)
	b.tree = reopen(t, b, statefs.Process)
	ids := make([]statefs.ID, live)
	var submits sync.WaitGroup
	for lane := range 32 {
		submits.Go(func() {
			for i := lane; i < live; i += 32 {
				ids[i] = b.submit("wait", `{}`)
			}
		})
	}
	submits.Wait()

	child, out := startChild(t, b.dir)
	b.awaitAll("run", ids, func(id statefs.ID) bool { return b.exists(statefs.MarkerName(id, statefs.Running)) })

	must(t, child.Process.Signal(syscall.SIGSTOP))
	for i := range foreign { // at least two events each: create and remove
		name := filepath.Join(b.dir, "jobs", fmt.Sprintf("foreign%d", i))
		must(t, os.WriteFile(name, nil, 0o600))
		must(t, os.Remove(name))
	}
	for _, ask := range []statefs.Action{statefs.Pause, statefs.Resume, statefs.Cancel} {
		for _, id := range ids {
			b.touch(id, ask)
		}
	}
	must(t, child.Process.Signal(syscall.SIGCONT))
	b.awaitAll("have ended", ids, func(id statefs.ID) bool {
		_, ended := b.hasEnded(id)
		return ended
	})
	must(t, child.Process.Signal(syscall.SIGTERM))
	must(t, child.Wait())

	var counters map[string]uint64
	must(t, json.Unmarshal(out.Bytes(), &counters))
	if counters["overflows"] == 0 || counters["rescans"] == 0 {
		t.Errorf("the queue did not overflow: %v", counters)
	}
	t.Logf("counters %v", counters)
	for _, id := range ids {
		rec, err := b.tree.ReadRecord(id)
		if err != nil || rec.Status != statefs.Cancelled {
			t.Fatalf("%s: %v %v", id, rec, err)
		}
		if log := b.log(id); !strings.HasSuffix(log, "stopping...\n") {
			t.Fatalf("log of %s: %q", id, log)
		}
	}
}

// reopen replaces the tree of a bench by one with another durability.
func reopen(t *testing.T, b *bench, durability statefs.Durability) *statefs.Tree {
	t.Helper()
	must(t, b.tree.Close())
	tree, err := statefs.Open(b.dir, statefs.Options{Durability: durability})
	must(t, err)
	return tree
}
