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

// When the keeper is killed its commands die, and each operation does what its job says of a death.
func TestKeeperIsKilled(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	k.start()
	ordinary := k.submit("script", script("echo begins; exec sleep 1000"))
	tried := k.submit("tried", script("echo begins; test $JOBDIR_RUN = 2 || exec sleep 1000"))
	k.awaitLog(ordinary, "begins\n")
	k.awaitLog(tried, "begins\n")
	pid := k.running(ordinary)
	must(t, unix.Kill(k.keepers()[0], unix.SIGKILL))
	rec := k.awaitEnd(ordinary)
	if rec.Status != statefs.Failed || rec.Error.Code != "keeper_died" {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	if lives(pid) {
		t.Error("its command goes on unseen")
	}
	rec = k.awaitEnd(tried)
	if rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 2 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	k.wantLog(ordinary, "begins", "  ERROR: the keeper process that held the command died, and the command with it")
}

// A machine that goes down sends SIGTERM to everybody, in any order: commands that end by it are not to blame, and begin again.
// A start that is sent to a keeper which is about to end costs a number of a run, and nothing else.
func TestEverybodyIsToldToEnd(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"commands, keeper, daemon", "commands, daemon, keeper", "keeper, commands, daemon", "daemon, commands, keeper"} {
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
					k.abandon(ErrLeave)
				}
			}
			must(t, <-k.ended)
			k.daemon = nil
			must(t, k.pool.Close())
			k.poll("the keeper ends", func() bool { return !lives(keeper) })
			k.start()
			for _, id := range ids {
				if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run < 2 || rec.Attempts != 1 {
					t.Errorf("error %+v, log %s", rec.Error, k.log(id))
				}
			}
		})
	}
}

// A keeper that is told to end interrupts its commands, which begin again in the hands of the next one.
func TestKeeperIsToldToEnd(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	k.start()
	id := k.begun("script", "echo begins; test $JOBDIR_RUN -gt 1 || exec sleep 1000")
	must(t, unix.Kill(k.keepers()[0], unix.SIGTERM))
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run < 2 || rec.Interrupts != rec.Run-1 || rec.Attempts != 1 {
		t.Errorf("error %+v, log %s, record %+v", rec.Error, k.log(id), rec)
	}
}

// When the daemon and its keeper are both killed, nothing goes on unseen, not even until another daemon comes, and what was cut off begins
// again.
func TestBothAreKilled(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	id := k.submit("script", script("(setsid sleep 1000 & echo $! >$JOBDIR_ARTIFACTS/deserter); echo $$; test $JOBDIR_RUN = 2 || exec sleep 1000"))
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
