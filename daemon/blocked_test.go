package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// obstacles create objects other than regular files at the name of a marker or a request.
var obstacles = map[string]func(t *testing.T, path string){
	"folder": func(t *testing.T, path string) {
		made := filepath.Join(t.TempDir(), "made") // the daemon may set it aside at once
		must(t, os.Mkdir(made, 0o750))
		must(t, os.WriteFile(filepath.Join(made, "precious"), []byte("content"), 0o640))
		must(t, os.Rename(made, path))
	},
	"link": func(t *testing.T, path string) { must(t, os.Symlink("/etc/hostname", path)) },
	"fifo": func(t *testing.T, path string) { must(t, unix.Mkfifo(path, 0o640)) },
}

// TestObstacleAtMarkerNameIsSetAside puts an object that is no regular file at the next name of the
// marker or of a request.
func TestObstacleAtMarkerNameIsSetAside(t *testing.T) {
	t.Parallel()
	for name, put := range obstacles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t, handlerJobs, testHandlers)
			logged := b.logInto()
			path := func(id statefs.ID, suffix string) string {
				return filepath.Join(b.tree.JobsDir(), id.String()+"."+suffix)
			}
			waits := b.submit("wait", `{}`)
			put(t, path(waits, "running")) // before the daemon takes it over
			b.start()
			b.awaitState(waits, statefs.Running)
			put(t, path(waits, "paused"))
			b.touch(waits, statefs.Pause)
			b.await("it is paused", func() bool {
				state, err := b.tree.State(waits)
				return err == nil && state == statefs.Paused
			})
			put(t, path(waits, "resume_requested"))
			b.await("the obstacle is gone", func() bool { return !b.exists(statefs.RequestName(waits, statefs.Resume)) })
			must(t, b.tree.Request(t.Context(), waits, statefs.Resume, nil))
			b.awaitState(waits, statefs.Running)
			b.daemon.reconcileQueue.wait()
			for _, suffix := range []string{"running", "paused", "resume_requested"} {
				if kept, _ := filepath.Glob(filepath.Join(b.dir, "corrupt", "*."+suffix)); len(kept) != 1 {
					t.Errorf("corrupt/ has %q", kept)
				}
				if n := logged.with("WARN", "file="+waits.String()+"."+suffix); n != 1 {
					t.Errorf("%s is reported %d times", suffix, n)
				}
				if n := strings.Count(b.log(waits), waits.String()+"."+suffix+"' is no regular file"); n != 1 {
					t.Errorf("%s is %d times in the log of the operation", suffix, n)
				}
			}
		})
	}
}

// TestImmovableObstacleDoesNotSpin puts a mount point, which cannot be moved, at the next name of
// the marker. The daemon must not spin, must log the request once, and must continue when the mount
// point is gone.
func TestImmovableObstacleDoesNotSpin(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this test mounts a tmpfs: run it as root")
	}
	b := prepare(t, handlerJobs, testHandlers)
	logged := b.logInto()
	id := b.submit("wait", `{}`)
	obstacle := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Paused))
	must(t, os.Mkdir(obstacle, 0o750))
	must(t, unix.Mount("tmpfs", obstacle, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(obstacle, unix.MNT_DETACH) }) // when the test fails early
	b.start()
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Pause)
	b.await("it was tried often", func() bool {
		must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), "nudge"), nil, 0o640)) // an event triggers a reconcile
		moves, _ := b.daemon.moves.get(id)
		return moves > immediateRetries+4
	})
	if n := logged.with("ERROR", "cannot be moved to corrupt/", "file="+filepath.Base(obstacle)); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if n := strings.Count(b.log(id), "cannot be moved to corrupt/: remove it"); n != 1 {
		t.Errorf("%d times in the log of the operation", n)
	}
	must(t, unix.Unmount(obstacle, 0))
	b.await("it is paused", func() bool {
		state, err := b.tree.State(id)
		return err == nil && state == statefs.Paused
	})
	if n := strings.Count(b.log(id), linePause); n != 1 {
		t.Errorf("the pause is %d times in the log", n)
	}
}

func TestMoveDelayGrows(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	for n := range 100 {
		waits = append(waits, moveDelay(n+1))
	}
	if waits[0] != 0 || waits[immediateRetries-1] != 0 || waits[immediateRetries] == 0 || waits[99] != retryInterval ||
		!slices.IsSorted(waits) {
		t.Errorf("the waits are %v", waits)
	}
}
