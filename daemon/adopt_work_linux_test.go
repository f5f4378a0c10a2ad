package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

const keptJobs = `
group: test
name: limited
params: {script: {type: string, required: true}}
timeout: 4s
run: [sh, -c, "${params.script}"]
grace: 300ms
---
group: test
name: tried
params: {script: {type: string, required: true}}
retry: {max_attempts: 2}
run: [sh, -c, "${params.script}"]
---
group: test
name: each
params: {script: {type: string, required: true}}
items: {range: [1, 6]}
run: [sh, -c, "${params.script}", sh, "${item}"]
---
group: test
name: together
params: {script: {type: string, required: true}}
items: {range: [1, 6]}
parallel: 3
run: [sh, -c, "${params.script}", sh, "${item}"]
`

const allKept = handlerJobs + "---" + commandJobs + "---" + keptJobs

// A command survives the kill of its daemon. Under the next daemon it is the same process and run,
// its log continues, and it can be paused, resumed and waited for.
func TestCommandOutlivesAKilledDaemon(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	until := k.fifo("until")
	id := k.begun("script", "echo begins; read x <"+until+"; echo ends; exit 3")
	k.kill(child)
	k.start()
	k.touch(id, statefs.Pause)
	k.awaitState(id, statefs.Paused)
	pid := k.running(id)
	k.poll("the process is stopped", func() bool { return processState(t, strconv.Itoa(pid)) == "T" })
	k.touch(id, statefs.Resume)
	k.awaitState(id, statefs.Running)
	k.open(until)
	rec := k.awaitEnd(id)
	if rec.Run != 1 || rec.Starts != 1 || rec.Rescues != 0 || rec.Interrupts != 0 || rec.ExitCode == nil ||
		*rec.ExitCode != 3 || rec.PID != pid {
		t.Errorf("record %+v", rec)
	}
	k.wantLog(id, "begins", "  Pause requested, pausing...", "  Resume requested, resuming...", "ends",
		"  ERROR: exit code 3")
	if left, _ := filepath.Glob(filepath.Join(k.dir, "operations", "*", "*.exit")); len(left) > 0 {
		t.Errorf("exit reports %v are left", left)
	}
}

// running returns the process ID of an operation's command, as the keeper reports it.
func (k *kept) running(id statefs.ID) int {
	k.t.Helper()
	pid := 0
	k.poll("a keeper has a command of "+id.String(), func() bool {
		for _, h := range k.pool.Commands() {
			if h.Key.Operation == id.String() {
				pid = h.PID
			}
		}
		return pid != 0
	})
	return pid
}

// The next daemon records how a command ended while no daemon ran.
func TestCommandEndsWhileNoDaemonIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job, script string
		status      statefs.State
		code        string
		log         []string
	}{
		"well":      {"script", "read x <$1; echo ends", statefs.Completed, "", []string{"ends"}},
		"with code": {"script", "read x <$1; exit 9", statefs.Failed, "exit_code", []string{"  ERROR: exit code 9"}},
		"by signal": {"script", "read x <$1; kill -9 $$", statefs.Failed, "signal", []string{"  ERROR: ended by SIGKILL"}},
		"by timeout": {
			"limited", "trap '' TERM; while :; do sleep 0.05; done", statefs.Failed, "timeout",
			[]string{"  ERROR: it took longer than the timeout of 4s"},
		},
		"with a result": {
			"script", `read x <$1; echo '{"answer":42}' >$JOBDIR_RESULT`, statefs.Completed, "", nil,
		},
	} {
		for _, gone := range []string{"keeper waits", "keeper has ended"} {
			t.Run(name+", "+gone, func(t *testing.T) {
				t.Parallel()
				k := prepareKept(t, allKept)
				child := k.child()
				until := k.fifo("until")
				id := k.submit(c.job, script("set -- "+until+"; echo begins; "+c.script))
				k.awaitLog(id, "begins\n")
				k.kill(child)
				if strings.Contains(c.script, "read") {
					k.open(until)
				}
				k.awaitReport(k.dir, id)
				if gone == "keeper has ended" {
					must(t, unix.Kill(k.keepers()[0], unix.SIGTERM))
					k.poll("the keeper ends", func() bool { return len(k.keepers()) == 0 })
				}
				k.start()
				rec := k.awaitEnd(id)
				if rec.Status != c.status || rec.Run != 1 || rec.Rescues != 0 || (rec.Error == nil) != (c.code == "") ||
					rec.Error != nil && rec.Error.Code != c.code {
					t.Errorf("record %+v, error %+v", rec, rec.Error)
				}
				if name == "with a result" && !strings.Contains(string(rec.Footer), `"answer":42`) {
					t.Errorf("footer %s", rec.Footer)
				}
				k.wantLog(id, append([]string{"begins"}, c.log...)...)
				k.poll("its report goes", func() bool {
					_, err := os.Stat(filepath.Join(k.dir, statefs.ExitName(id, "")))
					return os.IsNotExist(err)
				})
			})
		}
	}
}

// A pause survives restarts, also if it was made or undone by a rename while no daemon ran.
func TestPausedCommandStaysPaused(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	var ids [3]statefs.ID
	for i := range ids {
		ids[i] = k.begun("script", "echo begins; exec sleep 1000")
	}
	for _, id := range ids[:2] {
		k.touch(id, statefs.Pause)
		k.awaitState(id, statefs.Paused)
	}
	k.awaitNothingTaken()
	k.kill(child)
	k.mv(statefs.MarkerName(ids[1], statefs.Paused), statefs.MarkerName(ids[1], statefs.Running))
	k.mv(statefs.MarkerName(ids[2], statefs.Running), statefs.MarkerName(ids[2], statefs.Paused))
	for range 2 {
		k.start()
		for i, want := range []string{"T", "S", "T"} {
			pid := strconv.Itoa(k.running(ids[i]))
			k.poll(fmt.Sprintf("command %d is in state %s", i, want), func() bool { return processState(t, pid) == want })
		}
		k.leave()
	}
	k.start()
	for _, id := range ids {
		k.touch(id, statefs.Cancel)
		if rec := k.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Run != 1 {
			t.Errorf("record %+v", rec)
		}
	}
}

// A cancel that a killed daemon started is completed, whether or not the command has ended since.
func TestCancelIsFinishedByTheNextDaemon(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"it has ended": true, "it is still ending": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, strings.ReplaceAll(allKept, "grace: 300ms", "grace: 60s"))
			k.start()
			until := k.fifo("until")
			id := k.begun("script",
				`trap 'echo asked; read x <`+until+`; exit 4' TERM; echo begins; while :; do sleep 0.05; done`)
			k.touch(id, statefs.Cancel)
			k.awaitLog(id, "asked\n")
			k.leave() // the daemon stops in the middle of the cancel
			if ends {
				k.open(until)
				k.awaitReport(k.dir, id)
			}
			k.start()
			if !ends {
				k.open(until)
			}
			if rec := k.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Run != 1 {
				t.Errorf("record %+v, log %s", rec, k.log(id))
			}
		})
	}
}

// Removing a marker cancels the operation even if the daemon is killed before the work has ended:
// it has restored the marker by then.
func TestRemovedMarkerIsACancelForTheNextDaemonToo(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(allKept, "grace: 300ms", "grace: 60s"))
	child := k.child()
	until := k.fifo("until")
	id := k.begun("script", `trap 'echo asked; read x <`+until+`; exit 4' TERM; echo begins; while :; do sleep 0.05; done`)
	must(t, os.Remove(filepath.Join(k.tree.JobsDir(), statefs.MarkerName(id, statefs.Running))))
	k.awaitLog(id, "asked\n")
	k.kill(child)
	if !k.exists(statefs.MarkerName(id, statefs.Running)) {
		t.Fatal("the marker is not back: nothing is tested")
	}
	if _, err := os.Stat(filepath.Join(k.dir, "taken", statefs.RequestName(id, statefs.Cancel))); err != nil {
		t.Errorf("the cancel is in no file: %v", err)
	}
	k.start()
	k.open(until)
	if rec := k.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Run != 1 {
		t.Errorf("record %+v, log %s", rec, k.log(id))
	}
}

// A storage that is moved while only its keeper runs keeps the exits of its commands.
func TestMovedStorageKeepsTheEnds(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	until := k.fifo("until")
	id := k.begun("script", "echo begins; read x <"+until+"; exit 5")
	k.kill(child)
	moved := k.dir + "-moved"
	must(t, os.Rename(k.dir, moved))
	k.open(until)
	k.awaitReport(moved, id)
	must(t, os.Rename(moved, k.dir))
	k.start()
	if rec := k.awaitEnd(id); rec.ExitCode == nil || *rec.ExitCode != 5 || rec.Run != 1 {
		t.Errorf("record %+v", rec)
	}
}

// An exit report of another run, a report that cannot be decoded, and a command of an earlier run
// do not affect the current run.
func TestFilesOfAnotherRunAreSetAside(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]string{
		"of another run": `{"version":1,"id":"ID","run":7,"code":0,"ended_at":"2026-11-26T13:07:00Z"}`,
		"of another one": `{"version":1,"id":"other","run":1,"code":0,"ended_at":"2026-11-26T13:07:00Z"}`,
		"of the future":  `{"version":99,"id":"ID","run":1,"code":0,"ended_at":"2026-11-26T13:07:00Z"}`,
		"torn":           `{"version":1,"id":"I`,
		"empty":          "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			child := k.child()
			id := k.submit("script", script("echo run $JOBDIR_RUN; test $JOBDIR_RUN = 2 || exec sleep 1000"))
			k.awaitLog(id, "run 1\n")
			for _, keeper := range k.keepers() {
				must(t, unix.Kill(keeper, unix.SIGKILL))
			}
			k.kill(child)
			path := filepath.Join(k.dir, statefs.ExitName(id, ""))
			must(t, os.WriteFile(path, []byte(strings.ReplaceAll(report, "ID", id.String())), 0o600))
			k.start()
			if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 {
				t.Errorf("record %+v", rec)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the report is still there: %v", err)
			}
		})
	}
}

// A command does not continue if its operation was ended, moved or removed while no daemon ran.
func TestUnwantedCommandsAreEnded(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	var ids [3]statefs.ID
	for i := range ids {
		ids[i] = k.submit("script", script("echo $$; test $JOBDIR_RUN = 2 || exec sleep 1000"))
		k.awaitLog(ids[i], "\n")
	}
	removed, queued, stays := ids[0], ids[1], ids[2]
	k.touch(queued, statefs.Pause) // so that its record no longer contains next: running
	k.awaitState(queued, statefs.Paused)
	k.awaitNothingTaken()
	k.kill(child)
	must(t, os.Remove(filepath.Join(k.tree.JobsDir(), statefs.MarkerName(removed, statefs.Running))))
	k.mv(statefs.MarkerName(queued, statefs.Paused), statefs.MarkerName(queued, statefs.Queued))
	k.start()
	if rec := k.awaitEnd(removed); rec.Status != statefs.Cancelled || rec.Reason != "marker missing" {
		t.Errorf("record %+v", rec)
	}
	if rec := k.awaitEnd(queued); rec.Status != statefs.Completed || rec.Run != 2 {
		t.Errorf("record %+v", rec)
	}
	for _, id := range []statefs.ID{removed, queued} {
		first, _, _ := strings.Cut(k.log(id), "\n")
		pid, err := strconv.Atoi(first)
		must(t, err)
		if lives(pid) {
			t.Errorf("the first command of %s goes on", id)
		}
	}
	if !lives(k.running(stays)) {
		t.Error("the command that nobody touched was ended")
	}
}

// A marker that was renamed to a meaningless name is identified by its record, even without the
// list of live operations, which is a cache.
func TestMisnamedMarkerWithoutTheLiveList(t *testing.T) {
	t.Parallel()
	for _, ending := range []string{"", ".quewed", ".running.bak"} {
		t.Run("ending "+ending, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			k.start()
			id := k.begun("script", "echo begins; exec sleep 1000")
			pid := k.running(id)
			k.leave()
			k.mv(statefs.MarkerName(id, statefs.Running), id.String()+ending)
			must(t, os.Remove(filepath.Join(k.dir, "live.list")))
			k.start()
			k.awaitState(id, statefs.Running)
			if k.exists(id.String()+ending) || k.running(id) != pid || !lives(pid) {
				t.Error("the command does not go on under its marker")
			}
		})
	}
}
