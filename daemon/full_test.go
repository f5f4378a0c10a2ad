package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
)

// mountTmpfs mounts a file system on a folder until the test ends.
func mountTmpfs(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount the tmpfs of this test: run it as root, as in a container")
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// smallDisk mounts a small file system. It returns a folder on it, and a function that fills it
// until the returned function is called.
func smallDisk(t *testing.T) (dir string, fill func() (free func())) {
	t.Helper()
	mount := t.TempDir()
	mountTmpfs(t, mount, "4m")
	return filepath.Join(mount, "storage"), func() func() {
		ballast, err := os.Create(filepath.Join(mount, "ballast"))
		must(t, err)
		for err == nil {
			_, err = ballast.Write(make([]byte, 4096))
		}
		must(t, ballast.Close())
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk did not fill: %v", err)
		}
		return func() { // a command that another test starts may hold the file for a moment
			must(t, os.Truncate(ballast.Name(), 0))
			must(t, os.Remove(ballast.Name()))
		}
	}
}

func (b *bench) taken() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "taken"))
	must(b.t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// awaitKnown waits until the daemon manages an operation in a state: it has seen its marker.
func (b *bench) awaitKnown(id statefs.ID, state statefs.State) {
	b.t.Helper()
	b.await(id.String()+" is known to be "+string(state), func() bool {
		b.nudge()
		return b.daemon.manages(id) && b.daemon.stateOf(id) == state
	})
}

// nudge creates a file, whose event triggers the next check of an await.
func (b *bench) nudge() {
	f, err := os.Create(filepath.Join(b.tree.JobsDir(), "nudge"))
	must(b.t, err)
	must(b.t, f.Close())
}

// TestPauseOnAFullDisk pauses while the record cannot be written: the pause takes effect, and its
// request is removed when there is space again.
func TestPauseOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, handlerJobs, testHandlers)
	b.onFiles() // the journal has room for the change
	b.start()
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	free := fill()
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.daemon.reconcileQueue.wait()
	if got := b.taken(); len(got) != 1 {
		t.Errorf("taken/ holds %q before the effect is durable", got)
	}
	free()
	b.await("the record says paused", func() bool { return b.recordStatus(id) == statefs.Paused })
	b.daemon.reconcileQueue.wait()
	if got := b.taken(); len(got) != 0 {
		t.Errorf("taken/ holds %q", got)
	}
	b.touch(id, statefs.Resume)
	b.awaitState(id, statefs.Running)
}

// TestEventsOnAFullDisk pauses while the record cannot be written. The event comes at once, and not again when the
// record has the pause.
func TestEventsOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, handlerJobs, testHandlers)
	b.onFiles() // the journal has room for the change
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition, events.Swept}}, 0)
	defer r.Close()
	b.start()
	id := b.submit("wait", `{}`)
	b.toldOf(r, "test/wait >queued submit", "test/wait queued>running start")
	free := fill()
	b.touch(id, statefs.Pause)
	b.toldOf(r, "test/wait running>paused pause")
	if status := b.recordStatus(id); status == statefs.Paused {
		t.Errorf("the disk is full, and the record is %s", status)
	}
	free()
	b.record(id, statefs.Paused)
	b.daemon.reconcileQueue.wait()
	b.daemon.publishSweep(nil) // an event that would come after a second one of the pause
	b.toldOf(r, "sweep 0 []")
}

// TestStartOfAHandlerIsRecordedWhenThereIsSpace retries the record of a start by the one timer of the operation, which
// all its failures share. With a timer for each try, each other reconcile of the operation added one more, for as long
// as the disk was full.
func TestStartOfAHandlerIsRecordedWhenThereIsSpace(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, handlerJobs, testHandlers)
	b.onFiles() // the journal has room for the change
	b.start()
	var id statefs.ID
	free := func() {}
	for on := statefs.Running; on == statefs.Running; on = b.recordStatus(id) { // on record before the disk was full
		free()
		id = b.submit("wait", `{}`)
		b.awaitState(id, statefs.Running)
		free = fill()
	}
	b.await("the next try has a timer", func() bool {
		b.nudge()
		q := b.daemon.reconcileQueue
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.delayed[id] != nil
	})
	free()
	b.record(id, statefs.Running)
}

// TestAnOldPauseIsNotCarriedOutAgain pauses and resumes while the disk is full. The next daemon
// must not pause again.
func TestAnOldPauseIsNotCarriedOutAgain(t *testing.T) {
	t.Parallel()
	for name, resume := range map[string]func(b *bench, id statefs.ID){
		"by request": func(b *bench, id statefs.ID) { b.touch(id, statefs.Resume) },
		"by hand": func(b *bench, id statefs.ID) {
			b.mv(statefs.MarkerName(id, statefs.Paused), statefs.MarkerName(id, statefs.Running))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, fill := smallDisk(t)
			b := prepareAt(t, dir, handlerJobs, testHandlers)
			b.start()
			id := b.submit("wait", `{}`)
			b.awaitState(id, statefs.Running)
			free := fill()
			b.touch(id, statefs.Pause)
			b.awaitState(id, statefs.Paused)
			b.daemon.reconcileQueue.wait()
			resume(b, id)
			b.awaitKnown(id, statefs.Running)
			b.daemon.reconcileQueue.wait()
			for _, file := range b.taken() {
				if file == statefs.RequestName(id, statefs.Pause) {
					t.Errorf("%s is still there after the resume", file)
				}
			}
			must(t, b.stop())
			free()
			b.start()
			b.awaitState(id, statefs.Running)
			b.daemon.reconcileQueue.wait()
			if !b.exists(statefs.MarkerName(id, statefs.Running)) {
				t.Error("the next daemon paused it again")
			}
		})
	}
}

// TestCancelOnAFullDisk cancels an operation without running work while its end cannot be recorded.
func TestCancelOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.touch(id, statefs.Pause)
	b.start()
	b.awaitState(id, statefs.Paused)
	b.daemon.reconcileQueue.wait()
	free := fill()
	b.touch(id, statefs.Cancel)
	b.await("the request is taken", func() bool { return !b.exists(statefs.RequestName(id, statefs.Cancel)) })
	b.daemon.reconcileQueue.wait()
	free()
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("status %s", rec.Status)
	}
}

// TestMarkerRemovedOnAFullDisk removes a marker that cannot be made again for want of space. The log tells of it once,
// and not with each try.
func TestMarkerRemovedOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, handlerJobs, testHandlers)
	logged := b.logInto()
	id := b.submit("wait", `{}`)
	b.touch(id, statefs.Pause)
	b.start()
	b.awaitState(id, statefs.Paused)
	b.daemon.reconcileQueue.wait()
	free := fill()
	marker := statefs.MarkerName(id, statefs.Paused)
	must(t, os.Rename(filepath.Join(b.tree.JobsDir(), marker), filepath.Join(filepath.Dir(dir), marker))) // frees no space
	b.poll("it is tried again", func() bool { return b.daemon.counters.failedReconciles.Load() > 2 })
	free()
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("status %s", rec.Status)
	}
	if count := logged.with("marker removed manually"); count != 1 {
		t.Errorf("the log tells %d times of it", count)
	}
}

// heard is the output of a daemon's logger; it closes said when a text is written.
type heard struct {
	testWriter

	text string
	once sync.Once
	said chan struct{}
}

func (h *heard) Write(p []byte) (int, error) {
	if strings.Contains(string(p), h.text) {
		h.once.Do(func() { close(h.said) })
	}
	return h.testWriter.Write(p)
}

// TestItemsOnAFullDisk fills the disk while items run: a pause takes effect, and their results are neither lost nor
// counted as failures.
func TestItemsOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, parallel := range []string{"1", "2"} {
		t.Run("parallel "+parallel, func(t *testing.T) {
			t.Parallel()
			dir, fill := smallDisk(t)
			there := t.TempDir()
			begun, gate, list := filepath.Join(there, "begun"), filepath.Join(there, "gate"), filepath.Join(there, "list")
			pids := filepath.Join(there, "pids")
			var names strings.Builder
			for i := range 4 {
				fmt.Fprintf(&names, "%d%s\n", i+1, strings.Repeat("n", 2000)) // each item's end fills a page of its own
			}
			must(t, errors.Join(unix.Mkfifo(begun, 0o600), os.WriteFile(list, []byte(names.String()), 0o600)))
			b := prepareAt(t, dir, fmt.Sprintf("group: test\nname: gated\nitems: {list: %s}\nparallel: %s\n"+
				"run: [sh, -c, 'echo $$ >>%s; test ${1%%%%n*} != 1 || echo >%s; until test -e %s; do sleep 0.02; done', "+
				"sh, '${item}']\n", list, parallel, pids, begun, gate), nil)
			waits := &heard{testWriter: testWriter{t}, text: "work waits for room", said: make(chan struct{})}
			b.config.Logger = slog.New(slog.NewTextHandler(waits, nil))
			b.start()
			id := b.submit("gated", `{}`)
			_, err := os.ReadFile(begun)
			must(t, err)
			free := fill()
			must(t, os.WriteFile(gate, nil, 0o600))
			select {
			case <-waits.said:
			case <-time.After(patience):
				t.Error("nothing waits for room")
			}
			b.poll("the commands end", func() bool {
				text, err := os.ReadFile(pids)
				must(t, err)
				return !slices.ContainsFunc(strings.Fields(string(text)), func(pid string) bool {
					_, err := os.Stat("/proc/" + pid)
					return err == nil
				})
			})
			b.touch(id, statefs.Pause)
			b.awaitState(id, statefs.Paused)
			b.touch(id, statefs.Resume)
			b.awaitState(id, statefs.Running)
			free()
			rec := b.awaitEnd(id)
			if rec.Result != statefs.Success || rec.Processed != 4 {
				t.Errorf("result %s, %d done, error %+v", rec.Result, rec.Processed, rec.Error)
			}
			log := b.log(id)
			for i := 1; i <= 4; i++ {
				if strings.Count(log, fmt.Sprintf("[ %d / 4 ]", i)) != 1 || strings.Count(log, "  OK.\n") != 4 {
					t.Errorf("item %d is not there once, and well:\n%s", i, log)
				}
			}
			items := 0
			must(t, b.tree.ReadItems(id, "", func([]byte) error { items++; return nil }))
			if items != 4 {
				t.Errorf("%d item results", items)
			}
		})
	}
}
