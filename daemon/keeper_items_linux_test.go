package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// itemsTried is a job whose items are commands. A run that was cut off starts again; a failed run
// does not.
const itemsTried = `
group: test
name: %s
params: {script: {type: string, required: true}}
items: {range: [1, 4]}
parallel: %d
run: [%s, -c, "${params.script}", sh, "${item}"]
`

// keptItems is a storage with the jobs "one" and "three", which do one item at a time and three.
type keptItems struct {
	*kept

	did string // the file in which each command notes its start
}

func prepareItems(t *testing.T, program string) *keptItems {
	t.Helper()
	jobs := fmt.Sprintf(itemsTried, "one", 1, program) + "---" + fmt.Sprintf(itemsTried, "three", 3, program)
	return &keptItems{prepareKept(t, jobs+"---"+commandJobs), filepath.Join(t.TempDir(), "did")}
}

// items submits a job whose commands note their start, and then execute text; $1 is the item.
func (k *keptItems) items(job, text string) statefs.ID {
	k.t.Helper()
	return k.submit(job, script("echo $1 $JOBDIR_RUN >>"+k.did+"; echo item $1; "+text))
}

// begins lists the commands that have begun, each as "ITEM RUN".
func (k *keptItems) begins() []string {
	data, err := os.ReadFile(k.did)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// awaitBegin returns when the command of an item has begun in a run.
func (k *keptItems) awaitBegin(command string) {
	k.t.Helper()
	k.poll("command "+command+" begins", func() bool { return slices.Contains(k.begins(), command) })
}

// keeper starts a keeper with a command that goes on, and returns its process.
func (k *keptItems) keeper() int {
	k.t.Helper()
	k.begun("script", "echo begins; exec sleep 1000")
	return k.keepers()[0]
}

// stopped stops a process and returns when all of its threads are stopped.
func (k *keptItems) stopped(pid int) {
	k.t.Helper()
	must(k.t, unix.Kill(pid, unix.SIGSTOP))
	k.poll("the keeper stands still", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		must(k.t, err)
		return !slices.ContainsFunc(tasks, func(task string) bool {
			stat, err := os.ReadFile(task)
			_, rest, _ := strings.Cut(string(stat), ") ")
			return err == nil && rest[0] != 'T' && rest[0] != 'D' // D: it waits for a child to execute its program
		})
	})
}

var itemNumber = regexp.MustCompile(`(?m)^\[ (\d) / 4 \]`)

// wantItems waits for the end, and checks that all items are done and none is recorded as failed,
// that no command began twice in one run, that the log reports done as many items as expected, and
// that it has the lines of each item at most once per run.
func (k *keptItems) wantItems(id statefs.ID, runs, done int) {
	k.t.Helper()
	rec := k.awaitEnd(id)
	log := k.log(id)
	if rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.Processed != 4 ||
		rec.FailedN != 0 || rec.Run != runs {
		k.t.Errorf("%s, %s, run %d, %d processed, %d failed, error %+v", rec.Status, rec.Result, rec.Run, rec.Processed,
			rec.FailedN, rec.Error)
	}
	begins := k.begins()
	slices.Sort(begins)
	if once := slices.Compact(slices.Clone(begins)); len(once) != len(begins) {
		k.t.Errorf("a command began twice in one run: %q", begins)
	}
	if n := strings.Count(log, "  OK.\n"); n != done || strings.Contains(log, "FAIL") {
		k.t.Errorf("the log says %d times that an item is done", n)
	}
	for i, run := range regexp.MustCompile(`(?m)^  Run \d begins\.$`).Split(log, -1) {
		var numbers []string
		for _, match := range itemNumber.FindAllStringSubmatch(run, -1) {
			numbers = append(numbers, match[1])
		}
		slices.Sort(numbers)
		if len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			k.t.Errorf("run %d says twice that an item begins: %q", i+1, numbers)
		}
		for item := 1; item <= 4; item++ {
			if strings.Count(run, fmt.Sprintf("\nitem %d\n", item)) > 1 {
				k.t.Errorf("run %d has the output of item %d twice", i+1, item)
			}
		}
	}
	lines, err := os.ReadFile(k.tree.ItemsPath(id))
	must(k.t, err)
	if strings.Count(string(lines), `"ok":true`) != 4 || strings.Contains(string(lines), `"ok":false`) {
		k.t.Errorf("item results %.2000s", lines)
	}
	if k.t.Failed() {
		k.t.Logf("log:\n%.4000s", log)
	}
}

// eachWay runs a test for items one at a time and for three at a time.
func eachWay(t *testing.T, test func(t *testing.T, job string)) {
	t.Helper()
	for _, job := range []string{"one", "three"} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			test(t, job)
		})
	}
}

// The keeper dies before it has read the start request: the command never began.
func TestKeeperDiesBeforeAnItemBegins(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, job string) {
		k := prepareItems(t, "sh")
		k.start()
		keeper := k.keeper()
		k.stopped(keeper)
		id := k.items(job, "true")
		k.poll("the daemon waits for the keeper", func() bool { return len(k.daemon.Health().FailingOperations) > 0 })
		must(t, unix.Kill(keeper, unix.SIGKILL))
		k.wantItems(id, 2, 4)
	})
}

// The keeper dies after the command of an item has begun and before it tells the daemon.
func TestKeeperDiesBetweenTheSpawnAndItsAnswer(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, job string) {
		program := filepath.Join(t.TempDir(), "program")
		must(t, os.WriteFile(program, []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n"), 0o700))
		k := prepareItems(t, program)
		k.start()
		keeper := k.keeper()
		// The lease delays the first command when it executes its program.
		lease, err := os.Open(program)
		must(t, err)
		defer lease.Close()
		_, err = unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		must(t, err)
		id := k.items(job, "true")
		k.poll("the keeper spawns", func() bool {
			kind, err := unix.FcntlInt(lease.Fd(), unix.F_GETLEASE, 0)
			must(t, err)
			return kind != unix.F_WRLCK
		})
		k.stopped(keeper)
		_, err = unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		must(t, err)
		k.poll("the command begins", func() bool { return len(k.begins()) == 1 })
		must(t, unix.Kill(keeper, unix.SIGKILL))
		k.wantItems(id, 2, 4)
	})
}

// The keeper dies after the command of an item has succeeded and before it tells the daemon, with
// the daemon or without.
func TestKeeperDiesBetweenAnEndAndItsLine(t *testing.T) {
	t.Parallel()
	for _, daemonDies := range []bool{false, true} {
		t.Run(fmt.Sprintf("daemon dies %t", daemonDies), func(t *testing.T) {
			t.Parallel()
			k := prepareItems(t, "sh")
			child := k.child()
			first, second := k.fifo("first"), k.fifo("second")
			id := k.items("three",
				"test $(grep -c \"^$1 \" "+k.did+") = 1 || exit 0; case $1 in 1) read x <"+first+";; 2) read x <"+second+"; echo ended >>"+k.did+";; 3) exec sleep 1000;; esac; true")
			for _, command := range []string{"1 1", "2 1", "3 1"} {
				k.awaitBegin(command)
			}
			if daemonDies {
				k.kill(child)
				k.open(first)
				k.poll("the end of an item is reported", func() bool { return len(k.itemReports(id)) == 1 })
			}
			keeper := k.keepers()[0]
			k.stopped(keeper)
			k.open(second)
			k.awaitBegin("ended")
			must(t, unix.Kill(keeper, unix.SIGKILL))
			if daemonDies {
				k.start()
			} else {
				defer func() { must(t, child.Process.Signal(unix.SIGTERM)); must(t, child.Wait()) }()
			}
			k.wantItems(id, 2, 4)
			if slices.Contains(k.begins(), "1 2") == daemonDies {
				t.Errorf("begun were %q", k.begins())
			}
		})
	}
}

// lineLimit is a file size that the result of an item exceeds, but no other file of these tests.
const lineLimit = 256 << 10

// The daemon dies when the end of an item is in the log and its line is not yet among the results.
// The keeper lives, or dies after the daemon, with or without having written the item's exit
// report.
func TestDaemonDiesBetweenTheOutputOfAnItemAndItsLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runs, done int }{
		"keeper lives":            {1, 4},
		"keeper has reported":     {1, 4},
		"keeper has not reported": {2, 5}, // only the log shows that the item is done
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(t *testing.T, job string) {
				if job == "one" && c.runs == 2 {
					return // needs three at a time: the others done, the first unreported
				}
				k := prepareItems(t, "sh")
				child := k.child()
				hold := k.fifo("hold")
				id := k.items(job,
					fmt.Sprintf(`test $1$JOBDIR_RUN = 11 || exit 0; read x <%s; { printf '{"x":"'; head -c %d /dev/zero | tr '\0' x; printf '"}'; } >$JOBDIR_RESULT`, hold, 2*lineLimit))
				k.awaitBegin("1 1")
				reports := 4 // one at a time, the others end unreported after the first line's write error
				if job == "three" {
					k.poll("the other items have ended", func() bool { return strings.Count(k.log(id), "  OK.\n") == 3 })
					reports = 1
				}
				must(t, unix.Prlimit(child.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: lineLimit, Max: lineLimit}, nil))
				keeper := k.keepers()[0]
				if name == "keeper has not reported" {
					must(t, os.MkdirAll(filepath.Join(work.ScratchFolder(k.tree.LogPath(id)), "item-1.exit", "in the way"), 0o700))
				}
				k.open(hold)
				k.poll("all items have ended", func() bool { return strings.Count(k.log(id), "  OK.\n") == 4 })
				k.kill(child)
				if name != "keeper lives" {
					k.poll("the ends are reported", func() bool { return len(k.itemReports(id)) == reports })
					must(t, unix.Kill(keeper, unix.SIGKILL))
					k.poll("the keeper is dead", func() bool { return !lives(keeper) })
				}
				k.start()
				k.wantItems(id, c.runs, c.done)
			})
		})
	}
}
