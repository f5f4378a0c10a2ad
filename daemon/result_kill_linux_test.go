package daemon

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const resultJobs = `
group: test
name: counts
params: {script: {type: string, required: true}}
run: [sh, -c, "${params.script}"]
then: {job: test/follows, params: {n: "${result.n}"}}
---
group: test
name: follows
params: {n: {type: integer, required: true}}
run: [sh, -c, 'echo "follows $JOBDIR_PARAM_N"']
---
group: test
name: asks
params: {script: {type: string, required: true}}
retry: {max_attempts: 2}
run: [sh, -c, "${params.script}"]
`

// heldBack keeps the record of an operation from being written until the returned function is
// called: a folder takes its name, and the daemon cannot move that folder to corrupt/, which is a link to
// nothing.
func (k *kept) heldBack(id statefs.ID) (free func()) {
	k.t.Helper()
	corrupt := filepath.Join(k.dir, "corrupt")
	if err := os.Remove(corrupt); !errors.Is(err, fs.ErrNotExist) {
		must(k.t, err)
	}
	must(k.t, os.Symlink("nowhere", corrupt))
	record := strings.TrimSuffix(k.tree.LogPath(id), ".log") + ".json"
	aside := filepath.Join(k.t.TempDir(), "record")
	err := fs.ErrExist
	for errors.Is(err, fs.ErrExist) { // the daemon may write it between rename and mkdir
		must(k.t, os.Rename(record, aside))
		err = os.Mkdir(record, 0o750)
	}
	must(k.t, err)
	return func() {
		must(k.t, os.Remove(corrupt))
		must(k.t, os.Remove(record))
		must(k.t, os.Rename(aside, record))
	}
}

// killedAfter runs a command under a daemon and kills the daemon after the command has ended and
// the log contains said, but before the record is written.
func (k *kept) killedAfter(job, end, said string) statefs.ID {
	k.t.Helper()
	cmd, _ := startChild(k.t, k.dir, keptVariable+"=yes", "JOBDIR_COMMIT=files")
	until := k.fifo("until")
	id := k.begun(job, "test $JOBDIR_RUN = 1 || exit 0; echo begins; read x <"+until+"; "+end)
	free := k.heldBack(id)
	k.open(until)
	k.awaitLog(id, said)
	k.kill(cmd)
	free()
	return id
}

// The result of a command, and the operation submitted by then, survive a kill of the daemon
// between reading the result and writing the record.
func TestResultOutlivesAKill(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+resultJobs)
	id := k.killedAfter("counts", `echo '{"n": 7}' >$JOBDIR_RESULT`, "  Then test/follows: ")
	k.start()
	rec := k.awaitEnd(id)
	var footer struct{ N int }
	must(t, json.Unmarshal(rec.Footer, &footer))
	if rec.Status != statefs.Completed || rec.Run != 1 || footer.N != 7 || rec.Then == nil || rec.Then.Error != "" {
		t.Fatalf("%s, run %d, footer %s, then %+v", rec.Status, rec.Run, rec.Footer, rec.Then)
	}
	if strings.Count(k.log(id), rec.Then.ID.String()) != 2 {
		t.Errorf("it has another follower than before: %s, log %s", rec.Then.ID, k.log(id))
	}
	if next := k.awaitEnd(rec.Then.ID); next.Status != statefs.Completed ||
		!strings.Contains(k.log(next.ID), "follows 7\n") {
		t.Errorf("what follows is %s, log %s", next.Status, k.log(next.ID))
	}
	k.poll("the folder of the run has gone", func() bool { // after the marker
		_, err := os.Stat(work.ScratchFolder(k.tree.LogPath(id)))
		return os.IsNotExist(err)
	})
}

// The operation that was submitted as the follow-up stays the follow-up, even if its job has
// changed or is gone before the record could name it.
func TestFollowerStandsWhateverChanges(t *testing.T) {
	t.Parallel()
	// The job that the definition names as its follow-up when the next daemon starts.
	const other = "\n---\n{group: test, name: gone, params: {n: {type: integer}}, handler: count}\n"
	for name, jobs := range map[string]string{
		"another default": strings.ReplaceAll(resultJobs, "n: {type: integer, required: true}",
			"n: {type: integer, required: true}, more: {type: integer, default: 1}") + other,
		"another type": strings.ReplaceAll(resultJobs, "n: {type: integer, required: true}",
			"n: {type: boolean, required: true}") + other,
		"no job": strings.ReplaceAll(resultJobs, "name: follows", "name: gone"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept+"---"+resultJobs)
			id := k.killedAfter("counts", `echo '{"n": 7}' >$JOBDIR_RESULT`, "  Then test/follows: ")
			k.catalog = catalog.New(catalog.Options{Extra: []catalog.Source{{
				Name: "test.yaml",
				YAML: []byte(allKept + "---" + strings.Replace(jobs, "then: {job: test/follows", "then: {job: test/gone", 1)),
			}}})
			must(t, k.catalog.Reload())
			k.start()
			rec := k.awaitEnd(id)
			if rec.Then == nil || rec.Then.Error != "" || strings.Count(k.log(id), rec.Then.ID.String()) != 2 {
				t.Errorf("then %+v, log %s", rec.Then, k.log(id))
			}
		})
	}
}

// The retry time that a command requests survives a kill of the daemon, and its attempt is counted
// once.
func TestAskedWaitOutlivesAKill(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+resultJobs)
	id := k.killedAfter("asks", `echo '{"retry_after": 0.001}' >$JOBDIR_RESULT; exit 4`, "It is tried again")
	k.start()
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 2 {
		t.Errorf("%s, run %d, %d attempts, error %+v", rec.Status, rec.Run, rec.Attempts, rec.Error)
	}
}

// An attempt that ended while its operation was paused is counted once, even if the daemon is
// killed between the record and the exit report.
func TestAttemptThatEndedWhilePausedIsCountedOnce(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept+"---"+resultJobs)
	cmd := k.child()
	pidFile := filepath.Join(t.TempDir(), "pid")
	id := k.begun("asks", "test $JOBDIR_RUN = 1 || exit 0; echo -n $$ >"+pidFile+"; echo begins; exec sleep 1000")
	k.touch(id, statefs.Pause)
	k.awaitState(id, statefs.Paused)
	k.awaitNothingTaken()
	text, err := os.ReadFile(pidFile)
	must(t, err)
	pid, err := strconv.Atoi(string(text))
	must(t, err)
	k.kill(cmd)
	must(t, unix.Kill(pid, unix.SIGKILL))
	k.awaitReport(k.dir, id)
	rec, err := k.tree.ReadRecord(id)
	must(t, err)
	due := time.Now()
	rec.Attempts, rec.DiedAt, rec.Rescues, rec.DueAt = 1, []time.Time{due}, 1, &due
	rec.Error = &statefs.Fault{Code: "signal", Message: "ended by SIGKILL"}
	data, err := json.Marshal(rec)
	must(t, err)
	must(t, os.WriteFile(strings.TrimSuffix(k.tree.LogPath(id), ".log")+".json", data, 0o600))
	k.start()
	k.touch(id, statefs.Resume)
	if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Run != 2 || rec.Attempts != 2 {
		t.Errorf("%s, run %d, %d attempts, error %+v", rec.Status, rec.Run, rec.Attempts, rec.Error)
	}
}
