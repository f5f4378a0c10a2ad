package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// TestScanWhereEventsAreNotToBeHad uses a storage on a FUSE mount and makes requests in the folder
// behind it, which causes no events.
func TestScanWhereEventsAreNotToBeHad(t *testing.T) {
	t.Parallel()
	bindfs, err := exec.LookPath("bindfs")
	if err != nil {
		t.Skip("this test needs bindfs: apt-get install bindfs")
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("this test needs a usable /dev/fuse: %v", err)
	} else {
		must(t, f.Close())
	}
	behind, mount := t.TempDir(), t.TempDir()
	// bindfs returns when the mount is ready, and ends with it.
	if out, err := exec.CommandContext(t.Context(), bindfs, behind, mount).CombinedOutput(); err != nil {
		t.Skipf("this test needs the right to mount with FUSE: %v: %s", err, out)
	}
	t.Cleanup(func() { must(t, unix.Unmount(mount, unix.MNT_DETACH)) })

	b := prepareAt(t, filepath.Join(mount, "storage"), handlerJobs, testHandlers)
	b.start()
	health := b.daemon.Health()
	if health.Watch.Name != watch.ModeScan || health.Watch.Reason == "" {
		t.Errorf("mode %+v", health.Watch)
	}
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	for _, step := range []struct {
		ask   statefs.Action
		state statefs.State
	}{{statefs.Pause, statefs.Paused}, {statefs.Resume, statefs.Running}} {
		must(t, os.WriteFile(filepath.Join(behind, "storage", "jobs", statefs.RequestName(id, step.ask)), nil, 0o640))
		b.awaitState(id, step.state)
	}
	must(t, os.Remove(filepath.Join(behind, "storage", "jobs", statefs.MarkerName(id, statefs.Running))))
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("status %s", rec.Status)
	}
}
