package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// lockedLog collects log output.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// notes is a command that appends its run number to a file when it begins.
func notes(did string) string { return script("echo $JOBDIR_RUN >>" + did) }

func wantNothingBegan(t *testing.T, did string) {
	t.Helper()
	if data, err := os.ReadFile(did); !os.IsNotExist(err) {
		t.Errorf("the command has begun: %q, %v", data, err)
	}
}

// A command never begins after its cancel: neither if the keeper continues at once, nor if the
// operation has ended before.
func TestCancelledCommandDoesNotBeginInAStoppedKeeper(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"the keeper goes on": false, "the operation ends first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareItems(t, "sh")
			k.start()
			keeper := k.keeper()
			k.stopped(keeper)
			did := filepath.Join(t.TempDir(), "did")
			id := k.submit("script", notes(did))
			k.poll("the daemon waits for the keeper", func() bool { return len(k.daemon.Health().FailingOperations) > 0 })
			k.touch(id, statefs.Resume) // no effect, but the daemon reconciles the operation while its start waits
			k.poll("it is reconciled", func() bool { return !k.exists(statefs.RequestName(id, statefs.Resume)) })
			k.touch(id, statefs.Cancel)
			if ends {
				k.awaitEnd(id)
			}
			must(t, unix.Kill(keeper, unix.SIGCONT))
			if rec := k.awaitEnd(id); rec.Status != statefs.Cancelled {
				t.Errorf("%s, error %+v", rec.Status, rec.Error)
			}
			k.awaitEnd(k.submit("script", script("true"))) // by then the keeper has read all its orders
			wantNothingBegan(t, did)
		})
	}
}

// A keeper drops the order of a killed daemon that it reads later, before or after the next daemon
// connects.
func TestOrderOfAKilledDaemonIsDropped(t *testing.T) {
	t.Parallel()
	k := prepareItems(t, "sh")
	said, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer said.Close()
	child := exec.CommandContext(t.Context(), "/proc/self/exe")
	child.Env = append(os.Environ(), daemonDir+"="+k.dir, keptVariable+"=yes")
	child.Stderr = said
	must(t, child.Start())
	keeper := k.keeper()
	k.stopped(keeper)
	did := filepath.Join(t.TempDir(), "did")
	id := k.submit("script", notes(did))
	k.poll("the daemon waits for the keeper", func() bool {
		text, err := os.ReadFile(said.Name())
		return err == nil && strings.Contains(string(text), "does not answer")
	})
	k.kill(child)
	k.touch(id, statefs.Cancel)
	must(t, unix.Kill(keeper, unix.SIGCONT))
	k.start()
	if rec := k.awaitEnd(id); rec.Status != statefs.Cancelled {
		t.Errorf("%s, error %+v", rec.Status, rec.Error)
	}
	wantNothingBegan(t, did)
}

// A daemon serves beside a stopped keeper without a wait for its answer: the commands of that keeper
// continue, and none of them is started a second time, whether the keeper continues or dies.
func TestDaemonServesBesideAStoppedKeeper(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"it goes on": false, "it dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareItems(t, "sh")
			k.silenceTimeout = time.Hour // the daemon does not wait for that
			child := k.child()
			did, until := filepath.Join(t.TempDir(), "did"), k.fifo("until")
			note := "echo $JOBDIR_RUN >>" + did + "; echo begins; test $JOBDIR_RUN = 1 || exit 0; "
			goesOn := k.begun("script", note+"read x <"+until+"; true")
			cancelled := k.begun("script", "echo begins; exec sleep 1000")
			removed := k.begun("script", "echo begins; exec sleep 1000")
			items := k.items("three", "test $JOBDIR_RUN = 2 || test $1 = 4 || exec sleep 1000")
			k.awaitBegin("3 1")
			k.awaitBegin("1 1")
			keeper := k.keepers()[0]
			k.kill(child)
			k.stopped(keeper)
			must(t, os.Remove(filepath.Join(k.tree.JobsDir(), statefs.MarkerName(removed, statefs.Running))))
			k.start()
			if troubles := k.daemon.Health().FailingOperations; len(troubles) != 1 || !strings.Contains(troubles[0].Error,
				"does not answer") {
				t.Errorf("troubles %+v", troubles)
			}
			if rows, _, _, ok := k.daemon.LiveIndex(); !ok || rows.Len() == 0 {
				t.Error("no list of the live operations")
			}
			if rec := k.awaitEnd(k.submit("script", script("true"))); rec.Status != statefs.Completed {
				t.Errorf("a new operation: %s, error %+v", rec.Status, rec.Error)
			}
			k.awaitState(goesOn, statefs.Running)
			k.awaitState(items, statefs.Running)
			k.touch(cancelled, statefs.Cancel)
			if dies {
				must(t, unix.Kill(keeper, unix.SIGKILL))
			} else {
				must(t, unix.Kill(keeper, unix.SIGCONT))
				k.open(until)
			}
			rec := k.awaitEnd(goesOn)
			data, err := os.ReadFile(did)
			must(t, err)
			if want := map[bool]string{false: "1\n", true: "1\n2\n"}[dies]; rec.Status != statefs.Completed ||
				string(data) != want {
				t.Errorf("%s, run %d, error %+v, begun were %q", rec.Status, rec.Run, rec.Error, data)
			}
			if rec := k.awaitEnd(cancelled); rec.Status != statefs.Cancelled || rec.Run != 1 {
				t.Errorf("%s, run %d, error %+v", rec.Status, rec.Run, rec.Error)
			}
			if rec := k.awaitEnd(removed); rec.Status != statefs.Cancelled {
				t.Errorf("%s, error %+v", rec.Status, rec.Error)
			}
			k.poll("the command of the removed one has ended", func() bool {
				for _, h := range k.pool.Commands() {
					if h.Key.Operation == removed.String() {
						return false
					}
				}
				return true
			})
			if !dies {
				k.touch(items, statefs.Cancel)
				k.awaitEnd(items)
				return
			}
			k.wantItems(items, 2, 4)
		})
	}
}

// A keeper that does not answer is reported once, however many operations wait for it, and again
// after a minute.
func TestStoppedKeeperIsReportedOnceAMinute(t *testing.T) {
	t.Parallel()
	k := prepareItems(t, "sh")
	var said lockedLog
	k.config.Logger = slog.New(slog.NewTextHandler(&said, nil))
	k.startWith(k.config.Logger)
	keeper := k.keeper()
	k.stopped(keeper)
	for range 5 {
		k.submit("script", script("true"))
	}
	reports := func() int { return strings.Count(said.String(), "does not answer") }
	k.poll("it is reported again", func() bool { return reports() > 1 })
	if n := reports(); n != 2 {
		t.Errorf("%d reports", n)
	}
	must(t, unix.Kill(keeper, unix.SIGCONT))
}
