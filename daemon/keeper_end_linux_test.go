package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// When the keeper is killed its commands die, and start again by the restart rule of their job.
// That is no attempt.
func TestKeeperIsKilled(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	k.start()
	ordinary := k.submit("script", script("echo begins; test $JOBDIR_RUN = 2 || exec sleep 1000"))
	tried := k.submit("tried", script("echo begins; test $JOBDIR_RUN = 2 || exec sleep 1000"))
	k.awaitLog(ordinary, "begins\n")
	k.awaitLog(tried, "begins\n")
	pid := k.running(ordinary)
	must(t, unix.Kill(k.keepers()[0], unix.SIGKILL))
	rec := k.awaitEnd(ordinary)
	if rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 1 || rec.Rescues != 1 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	wantDeaths(t, rec, 1)
	if lives(pid) {
		t.Error("its command goes on unseen")
	}
	rec = k.awaitEnd(tried)
	if rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 1 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	k.wantLog(ordinary, "begins",
		"  Cut off: the keeper process that held the command died, and the command with it. It begins again.",
		"  Run 2 begins.", "begins")
}

// A machine that shuts down sends SIGTERM to all processes, in any order. Commands that it ends are
// not counted as failures and start again. A start that is sent to an ending keeper costs only a
// run number.
func TestShutdownSignalInterruptsCommands(t *testing.T) {
	t.Parallel()
	for _, order := range []string{
		"commands, keeper, daemon", "commands, daemon, keeper", "keeper, commands, daemon",
		"daemon, commands, keeper",
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			k.start()
			var ids [3]statefs.ID
			var pids [3]int
			for i := range ids {
				ids[i] = k.begun("script", "echo begins; test $JOBDIR_RUN -gt 1 || exec sleep 1000")
				pids[i] = k.running(ids[i])
			}
			keeper := k.keepers()[0]
			for who := range strings.SplitSeq(order, ", ") {
				switch who {
				case "commands":
					for _, pid := range pids {
						_ = unix.Kill(pid, unix.SIGTERM) // the keeper may have ended it
					}
				case "keeper":
					must(t, unix.Kill(keeper, unix.SIGTERM))
				case "daemon":
					k.abandon(ErrDetach)
				}
			}
			must(t, <-k.ended)
			k.daemon = nil
			must(t, k.pool.Close())
			k.poll("the keeper ends", func() bool { return !lives(keeper) })
			k.start()
			for _, id := range ids {
				if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run < 2 || rec.Attempts != 1 ||
					len(rec.DiedAt) > 0 {
					t.Errorf("error %+v, deaths %v, log %s", rec.Error, rec.DiedAt, k.log(id))
				}
			}
		})
	}
}

// A keeper that is asked to end interrupts its commands, which start again under the next one.
func TestKeeperShutdownInterruptsCommands(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	k.start()
	id := k.begun("script", "echo begins; test $JOBDIR_RUN -gt 1 || exec sleep 1000")
	must(t, unix.Kill(k.keepers()[0], unix.SIGTERM))
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run < 2 || rec.Interrupts != rec.Run-1 ||
		rec.Attempts != 1 || len(rec.DiedAt) > 0 {
		t.Errorf("error %+v, log %s, record %+v", rec.Error, k.log(id), rec)
	}
}

// When the daemon and its keeper are both killed, no command goes on unnoticed, not even until the
// next daemon starts, and the interrupted work starts again.
func TestBothAreKilled(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	id := k.submit("script",
		script("(setsid sleep 1000 & echo $! >$JOBDIR_ARTIFACTS/deserter); echo $$; test $JOBDIR_RUN = 2 || exec sleep 1000"))
	k.awaitLog(id, "\n")
	deserter, err := os.ReadFile(filepath.Join(k.tree.ArtifactsPath(id), "deserter"))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(deserter)))
	must(t, err)
	keepers := k.keepers()
	k.kill(child)
	for _, keeper := range keepers {
		must(t, unix.Kill(keeper, unix.SIGKILL))
	}
	k.poll("what the command has started is ended, with no daemon there", func() bool { return !lives(pid) })
	k.start()
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Rescues != 1 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
}
