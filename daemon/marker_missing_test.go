package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// TestRenamingWhileListedNeverCancels renames a marker as fast as it can while the folder is listed
// and swept.
func TestRenamingWhileListedNeverCancels(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	var ids []statefs.ID
	for range 4 {
		id := b.submit("wait", `{}`)
		b.awaitState(id, statefs.Running)
		ids = append(ids, id)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			if _, err := b.tree.List(); err != nil {
				t.Error(err)
			}
			if _, err := b.daemon.Sweep(t.Context(), false); err != nil {
				t.Error(err)
			}
			b.daemon.rescan()
		}
	}()
	path := func(id statefs.ID, state statefs.State) string {
		return filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, state))
	}
	for round := 0; ; round++ {
		from, to := statefs.Running, statefs.Paused
		if round%2 == 1 {
			from, to = to, from
		}
		for _, id := range ids {
			err := os.Rename(path(id, from), path(id, to))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	for _, id := range ids {
		b.await("the marker rests", func() bool {
			sight, err := b.tree.ObserveAll(id)
			return err == nil && len(sight.States) == 1
		})
		if strings.Contains(b.log(id), "Cancel") {
			t.Errorf("%s was cancelled", id)
		}
		b.touch(id, statefs.Cancel)
		if rec := b.awaitEnd(id); rec.Transitions[len(rec.Transitions)-1].Cause != statefs.CauseCancel {
			t.Errorf("%s ended by %v", id, rec.Transitions[len(rec.Transitions)-1])
		}
	}
}

func TestFolderThatIsTakenAwayStopsTheDaemon(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]struct {
		how  func(t *testing.T, jobs string)
		want error
	}{
		"replaced": {func(t *testing.T, jobs string) {
			must(t, os.Rename(jobs, jobs+".away"))
			must(t, os.Mkdir(jobs, 0o750))
		}, new(watch.GoneError)},
		"removed": {func(t *testing.T, jobs string) { must(t, os.RemoveAll(jobs)) }, new(watch.GoneError)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, handlerJobs, testHandlers)
			ids := []statefs.ID{b.submit("wait", `{}`), b.submit("wait", `{}`), b.submit("wait", `{}`)}
			for _, id := range ids {
				b.awaitState(id, statefs.Running)
			}
			take.how(t, b.tree.JobsDir())
			if name == "replaced" {
				// No event comes from the new folder; the next sweep, or the next reconcile,
				// notices it.
				_, _ = b.daemon.Sweep(t.Context(), false) // the error ends the daemon, which the test waits for
			}
			err := <-b.ended
			b.daemon = nil
			var gone *watch.GoneError
			if !errors.Is(err, take.want) && !errors.As(err, &gone) {
				t.Fatalf("the daemon ended with %v", err)
			}
			for _, id := range ids {
				if rec, err := b.tree.ReadRecord(id); err != nil || rec.Status.Terminal() {
					t.Errorf("%s: %v %v", id, rec.Status, err)
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEmptiedFolderIsRestoredAtTheNextStart(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	ids := []statefs.ID{b.submit("wait", `{}`), b.submit("wait", `{}`)}
	for _, id := range ids {
		b.awaitState(id, statefs.Running)
	}
	b.touch(ids[1], statefs.Pause)
	b.awaitState(ids[1], statefs.Paused)
	must(t, b.stop())
	names, err := filepath.Glob(b.tree.JobsDir() + "/*")
	must(t, err)
	for _, name := range names {
		must(t, os.Remove(name))
	}
	b.start()
	b.awaitState(ids[0], statefs.Running)
	b.awaitState(ids[1], statefs.Paused)
}

// TestUnmountStopsTheDaemon unmounts the file system of the storage, which causes no event.
func TestUnmountStopsTheDaemon(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this test mounts a tmpfs: run it as root")
	}
	mount := t.TempDir()
	must(t, unix.Mount("tmpfs", mount, "tmpfs", 0, "size=16m"))
	b := prepareAt(t, filepath.Join(mount, "storage"), handlerJobs, testHandlers)
	b.start()
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	b.awaitFiles()
	must(t, unix.Unmount(mount, unix.MNT_DETACH))
	if _, err := b.daemon.Sweep(t.Context(), false); err == nil {
		t.Error("the sweep did not notice")
	}
	err := <-b.ended
	b.daemon = nil
	if gone, ok := errors.AsType[*watch.GoneError](err); !ok {
		t.Fatalf("the daemon ended with %v", err)
	} else {
		t.Log(gone)
	}
	if rec, err := b.tree.ReadRecord(id); err != nil {
		t.Errorf("the record: %v", err)
	} else if rec.Status.Terminal() {
		t.Errorf("it is %s", rec.Status)
	}
}
