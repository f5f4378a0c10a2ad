package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func TestStopInterruptsAndTheNextDaemonGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs+"---\n{group: test, name: sleep, run: [sleep, \"3600\"]}\n", testHandlers)
	running, paused, command := b.submit("wait", `{}`), b.submit("wait", `{}`), b.submit("sleep", `{}`)
	for _, id := range []statefs.ID{running, paused, command} {
		b.awaitState(id, statefs.Running)
	}
	b.touch(paused, statefs.Pause)
	b.awaitState(paused, statefs.Paused)
	must(t, b.stop())
	if !b.exists(statefs.MarkerName(running, statefs.Queued)) || !b.exists(statefs.MarkerName(paused, statefs.Paused)) ||
		!b.exists(statefs.MarkerName(command, statefs.Queued)) {
		names, _ := filepath.Glob(b.tree.JobsDir() + "/*")
		t.Fatalf("after the stop: %q", names)
	}
	b.touch(paused, statefs.Resume) // a request made while no daemon runs
	b.start()
	for _, id := range []statefs.ID{running, paused, command} {
		b.awaitState(id, statefs.Running)
		rec, err := b.tree.ReadRecord(id)
		if err != nil || rec.Run != 2 || rec.Interrupts != 1 || rec.Attempts != 0 {
			t.Errorf("%s: run %d, interrupts %d, attempts %d, %v", id, rec.Run, rec.Interrupts, rec.Attempts, err)
		}
	}
}

// TestRecovery starts a daemon on storages as a crash or a person can leave them.
func TestRecovery(t *testing.T) {
	t.Parallel()
	owner := func(t *testing.T, b *bench) *statefs.Owner {
		o, err := statefs.Own(b.tree)
		must(t, err)
		t.Cleanup(func() { _ = o.Release() }) // the cases that start a daemon have released it before
		return o
	}
	for name, tc := range map[string]struct {
		leave func(t *testing.T, b *bench, id statefs.ID)
		check func(t *testing.T, b *bench, id statefs.ID)
	}{
		"queued": {
			func(*testing.T, *bench, statefs.ID) {},
			func(_ *testing.T, b *bench, id statefs.ID) { b.awaitState(id, statefs.Running) },
		},
		"running with a daemon that was killed": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				rec, err := o.ReadRecord(id)
				must(t, err)
				rec.Run, rec.Next, rec.Status = 1, statefs.Running, statefs.Running
				must(t, o.WriteRecord(rec))
				must(t, o.Move(id, statefs.Queued, statefs.Running))
				must(t, o.Release())
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.await("the second run", func() bool {
					rec, err := b.tree.ReadRecord(id)
					return err == nil && rec.Run == 2 && rec.Rescues == 1 && b.exists(statefs.MarkerName(id, statefs.Running))
				})
			},
		},
		"running with a daemon that was killed before the record said so": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				must(t, o.Move(id, statefs.Queued, statefs.Running))
				must(t, o.Release())
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				var rec *statefs.Record
				b.await("the second run", func() bool {
					var err error
					rec, err = b.tree.ReadRecord(id)
					return err == nil && rec.Run == 2 && b.exists(statefs.MarkerName(id, statefs.Running))
				})
				var causes []statefs.Cause
				for _, tr := range rec.Transitions {
					causes = append(causes, tr.Cause)
				}
				if want := []statefs.Cause{
					statefs.CauseSubmit, statefs.CauseStart, statefs.CauseRescued,
					statefs.CauseStart,
				}; !slices.Equal(causes, want) || rec.Starts != 2 || rec.Rescues != 1 {
					t.Errorf("%v, %d starts, %d rescues; want %v, 2, 1", causes, rec.Starts, rec.Rescues, want)
				}
			},
		},
		"record says running, rename cut off": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				rec, err := o.ReadRecord(id)
				must(t, err)
				rec.Run, rec.Next, rec.Status = 1, statefs.Running, statefs.Running
				must(t, o.WriteRecord(rec))
				must(t, o.Release())
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.await("the second run", func() bool {
					rec, err := b.tree.ReadRecord(id)
					return err == nil && rec.Run == 2 && b.exists(statefs.MarkerName(id, statefs.Running))
				})
			},
		},
		"ended, marker left": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				rec, err := o.ReadRecord(id)
				must(t, err)
				rec.Status = statefs.Completed
				must(t, o.WriteRecord(rec))
				must(t, o.Release())
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 0 {
					t.Errorf("%s, run %d", rec.Status, rec.Run)
				}
			},
		},
		"marker removed meanwhile": {
			func(t *testing.T, b *bench, id statefs.ID) {
				b.submit("wait", `{}`) // another operation, so that the folder is not empty
				must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Queued))))
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Reason != "marker missing" {
					t.Errorf("%s %q", rec.Status, rec.Reason)
				}
			},
		},
		"record torn": {
			func(t *testing.T, b *bench, id statefs.ID) {
				path := strings.TrimSuffix(b.tree.LogPath(id), ".log") + ".json"
				must(t, os.WriteFile(path, []byte(`{"version": 1, "id`), 0o640))
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.awaitState(id, statefs.FailedManual)
				b.await("the new record", func() bool {
					rec, err := b.tree.ReadRecord(id)
					return err == nil && rec.Reason == "record unreadable"
				})
				if kept, _ := filepath.Glob(b.dir + "/corrupt/*.json.reason"); len(kept) != 1 {
					t.Errorf("corrupt/ holds %q", kept)
				}
				b.touch(id, statefs.Cancel)
				if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
					t.Errorf("status %s", rec.Status)
				}
			},
		},
		"moved to paused meanwhile": {
			func(_ *testing.T, b *bench, id statefs.ID) {
				b.mv(statefs.MarkerName(id, statefs.Queued), statefs.MarkerName(id, statefs.Paused))
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.awaitState(id, statefs.Paused)
				b.touch(id, statefs.Resume)
				b.awaitState(id, statefs.Running)
			},
		},
		"running, moved to paused while no daemon ran": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				rec, err := o.ReadRecord(id)
				must(t, err)
				rec.Run, rec.Next = 1, statefs.Running
				must(t, rec.Apply(statefs.Queued, statefs.CauseStart, time.Now()))
				must(t, o.WriteRecord(rec))
				must(t, o.Move(id, statefs.Queued, statefs.Running))
				must(t, o.Release())
				b.mv(statefs.MarkerName(id, statefs.Running), statefs.MarkerName(id, statefs.Paused))
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.daemon.reconcileQueue.wait()
				if rec, err := b.tree.ReadRecord(id); err != nil || rec.Run != 1 ||
					!b.exists(statefs.MarkerName(id, statefs.Paused)) {
					t.Errorf("it does not stay paused: run %d, %v", rec.Run, err)
				}
			},
		},
		"a request was taken": {
			func(t *testing.T, b *bench, id statefs.ID) {
				o := owner(t, b)
				b.touch(id, statefs.Cancel)
				if _, ok, err := o.Requests.Take(id, statefs.Cancel); !ok || err != nil {
					t.Fatal(ok, err)
				}
				must(t, o.Release())
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Run != 0 {
					t.Errorf("%s, run %d", rec.Status, rec.Run)
				}
			},
		},
		"two markers": {
			func(t *testing.T, b *bench, id statefs.ID) {
				must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Trailing)), nil, 0o640))
			},
			func(t *testing.T, b *bench, id statefs.ID) {
				b.awaitState(id, statefs.Running)
				b.await("one marker", func() bool {
					sight, err := b.tree.ObserveAll(id)
					return err == nil && len(sight.States) == 1
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t, handlerJobs, testHandlers)
			id := b.submit("wait", `{}`)
			tc.leave(t, b, id)
			b.start()
			tc.check(t, b, id)
		})
	}
}

func TestForeignOperationIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	// The parent of this test is alive and is not the daemon.
	id, err := statefs.MakeID("some-program", time.Now(), os.Getppid(), 7)
	must(t, err)
	marker := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running))
	must(t, os.WriteFile(marker, []byte(time.Now().Format(statefs.StampFormat)+"\n"), 0o640))
	b.touch(id, statefs.Pause)
	if _, err := b.daemon.Sweep(t.Context(), false); err != nil {
		t.Error(err)
	}
	b.daemon.reconcileQueue.wait()
	if !b.exists(statefs.MarkerName(id, statefs.Running)) || !b.exists(statefs.RequestName(id, statefs.Pause)) {
		t.Error("the files of a live foreign program were touched")
	}
	must(t, os.Rename(marker, strings.Replace(marker, "running", "paused", 1)))
	if _, err := b.daemon.Sweep(t.Context(), false); err != nil {
		t.Error(err)
	}
	if !b.exists(statefs.MarkerName(id, statefs.Paused)) {
		t.Error("a foreign program may move its own marker")
	}
}

// An operation that another process submits while a daemon starts is never mistaken for one whose
// marker was removed.
func TestSubmitWhileADaemonStarts(t *testing.T) {
	t.Parallel()
	b := prepare(t, commandJobs, nil)
	var ids []statefs.ID
	for range 8 {
		submitted := make(chan []statefs.ID, 1)
		go func() {
			var own []statefs.ID
			for range 12 {
				rec, err := publish(b.tree, statefs.Submission{Group: "test", Job: "argv"})
				if err != nil {
					t.Error(err)
					break
				}
				own = append(own, rec.ID)
			}
			submitted <- own
		}()
		b.start()
		ids = append(ids, <-submitted...)
		must(t, b.stop())
	}
	b.start()
	for _, id := range ids {
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed {
			t.Errorf("%s is %s: %s %+v", id, rec.Status, rec.Reason, rec.Error)
		}
	}
}

// A sweep restores the lock file, by which the daemon is found, and the mark, by which it knows its
// commands.
func TestSweepMakesItsOwnFilesAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	mark := b.daemon.owner.Mark()
	for _, name := range []string{"jobdir.lock", "storage.json"} {
		must(t, os.Remove(filepath.Join(b.dir, name)))
	}
	if _, err := b.daemon.Sweep(t.Context(), false); err != nil {
		t.Error(err)
	}
	if pid, err := os.ReadFile(filepath.Join(b.dir, "jobdir.lock")); err != nil ||
		strings.TrimSpace(string(pid)) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the lock file says %q, %v", pid, err)
	}
	if got, err := statefs.MarkOf(b.dir); got != mark || err != nil {
		t.Errorf("the mark is %q, %v, want %q", got, err, mark)
	}
}
