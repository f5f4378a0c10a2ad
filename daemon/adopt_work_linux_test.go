package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
)

const keptJobs = `
group: test
name: limited
params: {script: {type: string, required: true}}
timeout: 1500ms
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

// A command goes on while its daemon is killed and another one comes: it is the same process in the same run, its log goes on, and it
// is still paused, resumed and waited for.
func TestCommandOutlivesAKilledDaemon(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	until := k.fifo("until")
	id := k.submit("script", script("echo begins; read x <"+until+"; echo ends; exit 3"))
	k.awaitLog(id, "begins\n")
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
	if rec.Run != 1 || rec.Starts != 1 || rec.Rescues != 0 || rec.Interrupts != 0 || rec.ExitCode == nil || *rec.ExitCode != 3 || rec.PID != pid {
		t.Errorf("record %+v", rec)
	}
	k.wantLog(id, "begins", "  Pause requested, pausing...", "  Resume requested, resuming...", "ends", "  ERROR: exit code 3")
	if left, _ := filepath.Glob(filepath.Join(k.dir, "operations", "*", "*.exit")); len(left) > 0 {
		t.Errorf("exit reports %v are left", left)
	}
}

// running returns the process number of the command of an operation, as the keeper says it.
func (k *kept) running(id statefs.ID) int {
	k.t.Helper()
	pid := 0
	k.poll("a keeper has a command of "+id.String(), func() bool {
		for _, h := range k.pool.Held() {
			if h.Key.Operation == id.String() {
				pid = h.PID
			}
		}
		return pid != 0
	})
	return pid
}

// What became of a command while no daemon was there is in the record of the next one.
func TestCommandEndsWhileNoDaemonIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job, script string
		status      statefs.State
		code        string
		log         []string
	}{
		"well":       {"script", "read x <$1; echo ends", statefs.Completed, "", []string{"ends"}},
		"with code":  {"script", "read x <$1; exit 9", statefs.Failed, "exit_code", []string{"  ERROR: exit code 9"}},
		"by signal":  {"script", "read x <$1; kill -9 $$", statefs.Failed, "signal", []string{"  ERROR: ended by SIGKILL"}},
		"by timeout": {"limited", "trap '' TERM; while :; do sleep 0.05; done", statefs.Failed, "timeout", []string{"  ERROR: it took longer than the timeout of 1.5s"}},
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
				k.poll("the exit report", func() bool {
					_, err := keeper.ReadReport(k.dir, statefs.ExitName(id))
					return err == nil
				})
				if gone == "keeper has ended" {
					must(t, unix.Kill(k.keepers()[0], unix.SIGTERM))
					k.poll("the keeper ends", func() bool { return len(k.keepers()) == 0 })
				}
				k.start()
				rec := k.awaitEnd(id)
				if rec.Status != c.status || rec.Run != 1 || rec.Rescues != 0 || (rec.Error == nil) != (c.code == "") || rec.Error != nil && rec.Error.Code != c.code {
					t.Errorf("record %+v, error %+v", rec, rec.Error)
				}
				if name == "with a result" && !strings.Contains(string(rec.Footer), `"answer":42`) {
					t.Errorf("footer %s", rec.Footer)
				}
				k.wantLog(id, append([]string{"begins"}, c.log...)...)
				k.poll("its report goes", func() bool {
					_, err := os.Stat(filepath.Join(k.dir, statefs.ExitName(id)))
					return os.IsNotExist(err)
				})
			})
		}
	}
}

// A pause outlasts the daemon, also one that somebody made or undid by hand while none was there.
func TestPausedCommandStaysPaused(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	var ids [3]statefs.ID
	for i := range ids {
		ids[i] = k.submit("script", script("echo begins; exec sleep 1000"))
		k.awaitLog(ids[i], "begins\n")
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

// A cancel that the killed daemon had begun is a cancel, whether the command has ended since or not.
func TestCancelIsFinishedByTheNextDaemon(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"it has ended": true, "it is still ending": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, strings.ReplaceAll(allKept, "grace: 300ms", "grace: 60s"))
			k.start()
			until := k.fifo("until")
			id := k.submit("script", script(`trap 'echo asked; read x <`+until+`; exit 4' TERM; echo begins; while :; do sleep 0.05; done`))
			k.awaitLog(id, "begins\n")
			k.touch(id, statefs.Cancel)
			k.awaitLog(id, "asked\n")
			k.leave() // the daemon goes away in the middle of the cancel
			if ends {
				k.open(until)
				k.poll("the exit report", func() bool {
					_, err := keeper.ReadReport(k.dir, statefs.ExitName(id))
					return err == nil
				})
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

// The removal of a marker is a cancel also when the daemon is killed before the work has ended: the marker is back by then.
func TestRemovedMarkerIsACancelForTheNextDaemonToo(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(allKept, "grace: 300ms", "grace: 60s"))
	child := k.child()
	until := k.fifo("until")
	id := k.submit("script", script(`trap 'echo asked; read x <`+until+`; exit 4' TERM; echo begins; while :; do sleep 0.05; done`))
	k.awaitLog(id, "begins\n")
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

// Items that were under way go on where they are, and the others follow: each is done once, and the log has what it would have.
func TestItemsOutliveAKilledDaemon(t *testing.T) {
	t.Parallel()
	for _, job := range []string{"each", "together"} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, end meanwhile %t", job, ends), func(t *testing.T) {
				t.Parallel()
				k := prepareKept(t, allKept)
				child := k.child()
				dir := t.TempDir()
				hold := filepath.Join(dir, "hold")
				must(t, os.WriteFile(hold, nil, 0o600))
				id := k.submit(job, script(fmt.Sprintf("echo item $1; echo $1 >>%s/did; test $1 -lt 2 || while test -e %s; do sleep 0.02; done; echo end $1", dir, hold)))
				began := map[string]int{"each": 2, "together": 4}[job]
				k.poll("some items are under way", func() bool {
					did, err := os.ReadFile(filepath.Join(dir, "did"))
					return err == nil && strings.Count(string(did), "\n") == began
				})
				k.kill(child)
				if ends {
					must(t, os.Remove(hold))
					k.poll("the items under way end", func() bool { return len(k.itemReports(id)) == began-1 })
				}
				k.start()
				if !ends {
					must(t, os.Remove(hold))
				}
				rec := k.awaitEnd(id)
				if rec.Status != statefs.Completed || rec.Run != 1 || rec.Processed != 6 || rec.Rescues != 0 {
					t.Errorf("record %+v", rec)
				}
				did, err := os.ReadFile(filepath.Join(dir, "did"))
				must(t, err)
				if strings.Count(string(did), "\n") != 6 {
					t.Errorf("done were %q", did)
				}
				log := k.log(id)
				for i := 1; i <= 6; i++ {
					whole := fmt.Sprintf("[ %d / 6 ] Processing '%d'...\nitem %d\nend %d\n  OK.\n", i, i, i, i)
					if strings.Count(log, whole) != 1 {
						t.Errorf("item %d is not there once and whole", i)
					}
				}
				if strings.Count(log, "\n") != 24 {
					t.Errorf("log:\n%s", log)
				}
				var footer struct {
					Files []struct {
						Filename string `json:"filename"`
					} `json:"processed_files"`
				}
				must(t, json.Unmarshal(rec.Footer, &footer))
				if len(footer.Files) != 6 {
					t.Errorf("footer %s", rec.Footer)
				}
			})
		}
	}
}

// Files that come or go between two daemons change the numbers of the items, and not which of them are done.
func TestItemsWhoseNumbersChange(t *testing.T) {
	t.Parallel()
	for _, parallel := range []string{"1", "3"} {
		t.Run("parallel "+parallel, func(t *testing.T) {
			t.Parallel()
			files, dir := t.TempDir(), t.TempDir()
			hold := filepath.Join(dir, "hold")
			must(t, os.WriteFile(hold, nil, 0o600))
			for _, name := range []string{"b", "c", "d", "e", "f"} {
				must(t, os.WriteFile(filepath.Join(files, name), nil, 0o600))
			}
			k := prepareKept(t, fmt.Sprintf("group: test\nname: files\nitems: {glob: %q}\nparallel: %s\nrun: [sh, -c, 'echo $1 >>%s/did; while test -e %s; do sleep 0.02; done', sh, '${item}']\n", files+"/*", parallel, dir, hold))
			k.start()
			id := k.submit("files", "{}")
			k.poll("items are under way", func() bool {
				did, err := os.ReadFile(filepath.Join(dir, "did"))
				return err == nil && strconv.Itoa(strings.Count(string(did), "\n")) == parallel
			})
			k.leave()
			must(t, os.WriteFile(filepath.Join(files, "a0"), nil, 0o600))
			must(t, os.WriteFile(filepath.Join(files, "a1"), nil, 0o600))
			must(t, os.Remove(filepath.Join(files, "f")))
			k.start()
			must(t, os.Remove(hold))
			rec := k.awaitEnd(id)
			if rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.Processed != 6 || rec.Run != 1 {
				t.Errorf("record %+v, error %+v, log %s", rec, rec.Error, k.log(id))
			}
			did, err := os.ReadFile(filepath.Join(dir, "did"))
			must(t, err)
			for _, name := range []string{"a0", "a1", "b", "c", "d", "e"} {
				if strings.Count(string(did), filepath.Join(files, name)+"\n") != 1 {
					t.Errorf("%s was not done once: %q", name, did)
				}
			}
		})
	}
}

// A storage that is moved while only its keeper lives keeps the ends of its commands.
func TestMovedStorageKeepsTheEnds(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	until := k.fifo("until")
	id := k.submit("script", script("echo begins; read x <"+until+"; exit 5"))
	k.awaitLog(id, "begins\n")
	k.kill(child)
	moved := k.dir + "-moved"
	must(t, os.Rename(k.dir, moved))
	k.open(until)
	k.poll("the exit report", func() bool {
		_, err := keeper.ReadReport(moved, statefs.ExitName(id))
		return err == nil
	})
	must(t, os.Rename(moved, k.dir))
	k.start()
	if rec := k.awaitEnd(id); rec.ExitCode == nil || *rec.ExitCode != 5 || rec.Run != 1 {
		t.Errorf("record %+v", rec)
	}
}

// When the keeper dies no item in flight has a verdict: they are done again if the job is tried again.
func TestKeeperIsKilledDuringItems(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(allKept, "parallel: 3", "parallel: 3\nretry: {max_attempts: 2}"))
	k.start()
	dir := t.TempDir()
	id := k.submit("together", script("echo $1 $JOBDIR_RUN >>"+dir+"/did; test $1 = 1 || test $JOBDIR_RUN = 2 || exec sleep 1000"))
	k.poll("items are under way", func() bool {
		did, err := os.ReadFile(filepath.Join(dir, "did"))
		return err == nil && strings.Count(string(did), "\n") == 4
	})
	must(t, unix.Kill(k.keepers()[0], unix.SIGKILL))
	rec := k.awaitEnd(id)
	if rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.Processed != 6 || rec.Run != 2 {
		t.Errorf("record %+v, error %+v, log %s", rec, rec.Error, k.log(id))
	}
}

// itemReports returns the exit reports of items.
func (k *kept) itemReports(id statefs.ID) []string {
	found, err := filepath.Glob(filepath.Join(scratchOf(k.tree.LogPath(id)).dir, "item-*.exit"))
	must(k.t, err)
	return found
}

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
				ids[i] = k.submit("script", script("echo begins; test $JOBDIR_RUN = 2 || exec sleep 1000"))
				k.awaitLog(ids[i], "begins\n")
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
				if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 1 {
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
	id := k.submit("script", script("echo begins; test $JOBDIR_RUN = 2 || exec sleep 1000"))
	k.awaitLog(id, "begins\n")
	must(t, unix.Kill(k.keepers()[0], unix.SIGTERM))
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Interrupts != 1 || rec.Attempts != 1 {
		t.Errorf("error %+v, log %s, record %+v", rec.Error, k.log(id), rec)
	}
}

// When the daemon and its keeper are both killed, nothing goes on unseen, and what was cut off begins again.
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
	for _, keeper := range k.keepers() {
		must(t, unix.Kill(keeper, unix.SIGKILL))
	}
	k.kill(child)
	k.start()
	if lives(pid) {
		t.Error("what the command has started goes on")
	}
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Rescues != 1 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
}

// An exit report of another run, one that cannot be understood, and a command of an earlier run say nothing about the present one.
func TestWhatIsNotOfThisRunIsPutAside(t *testing.T) {
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
			path := filepath.Join(k.dir, statefs.ExitName(id))
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

// A command of an operation that somebody ended, moved or removed while no daemon was there does not go on.
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
	k.touch(queued, statefs.Pause) // so that its record no longer waits for the move to running
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

// Paused time does not count against a timeout that the next daemon takes over.
func TestWorkedIsWithoutPauses(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }
	began := at(10)
	rec := &statefs.Record{StartedAt: &began, Transitions: []statefs.Transited{
		{From: statefs.Queued, To: statefs.Running, At: at(2)},
		{From: statefs.Running, To: statefs.Queued, At: at(5)},
		{From: statefs.Queued, To: statefs.Running, At: at(10)},
		{From: statefs.Running, To: statefs.Paused, At: at(14)},
		{From: statefs.Paused, To: statefs.Running, At: at(30)},
	}}
	if got := rec.Worked(at(33)); got != 7*time.Second {
		t.Errorf("worked %s", got)
	}
	rec.Transitions = append(rec.Transitions, statefs.Transited{From: statefs.Running, To: statefs.Paused, At: at(40)})
	if got := rec.Worked(at(99)); got != 14*time.Second {
		t.Errorf("while paused: worked %s", got)
	}
}

// A marker that somebody renamed to what means nothing is known by its record, also without the list of live operations, which is a cache.
func TestMisnamedMarkerWithoutTheLiveList(t *testing.T) {
	t.Parallel()
	for _, ending := range []string{"", ".quewed", ".running.bak"} {
		t.Run("ending "+ending, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			k.start()
			id := k.submit("script", script("echo begins; exec sleep 1000"))
			k.awaitLog(id, "begins\n")
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
