package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const silentJobs = `
group: test
name: silent
run: ["true"]
---
group: test
name: waits
params: {gate: {type: string}}
run: [sh, -c, 'read line <"$1"', sh, "${params.gate}"]
---
group: test
name: optional
steps:
  - {name: main, run: [echo, one]}
  - {name: quiet, optional: true, run: ["true"]}
`

// awaitNoFile returns when the file does not exist.
func (b *bench) awaitNoFile(name string) {
	b.t.Helper()
	b.poll(name+" is gone", func() bool {
		_, err := os.Lstat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestSilentCommandLeavesNoLog: the log of a command exists while it runs, and is removed at its
// end if it is empty.
func TestSilentCommandLeavesNoLog(t *testing.T) {
	t.Parallel()
	b := setup(t, silentJobs, nil)
	id := b.submit("silent", `{}`)
	if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.LogBytes == nil || *rec.LogBytes != 0 {
		t.Errorf("record %+v", rec)
	}
	b.awaitNoFile(b.tree.LogPath(id))

	gate := filepath.Join(t.TempDir(), "gate")
	must(t, unix.Mkfifo(gate, 0o600))
	id = b.submit("waits", `{"gate":"`+gate+`"}`)
	b.await("it has a log while it runs", func() bool {
		info, err := os.Lstat(b.tree.LogPath(id))
		return err == nil && info.Size() == 0
	})
	must(t, os.WriteFile(gate, []byte("go on\n"), 0o600))
	b.awaitEnd(id)
	b.awaitNoFile(b.tree.LogPath(id))

	id = b.submit("optional", `{}`)
	rec := b.awaitEnd(id)
	if quiet := steps.Find(rec.Steps, "quiet"); quiet == nil || quiet.Status != steps.Succeeded {
		t.Errorf("steps %s", statuses(rec))
	}
	b.awaitNoFile(b.tree.StepLogPath(id, "quiet"))
	b.awaitLog(id, "one\n")
}

// TestFifoInPlaceOfTheLogOfAFailure: the daemon reads the log of a failed command for the error. A
// fifo in its place must not block the end.
func TestFifoInPlaceOfTheLogOfAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	gate := filepath.Join(t.TempDir(), "gate")
	must(t, unix.Mkfifo(gate, 0o600))
	id := b.submit("script", script("echo why; cat "+gate+"; exit 3"))
	b.awaitLog(id, "why\n")
	log := b.tree.LogPath(id)
	must(t, os.Remove(log))
	must(t, unix.Mkfifo(log, 0o640))
	must(t, os.WriteFile(gate, []byte("go on\n"), 0o600))
	if rec := b.awaitEnd(id); rec.Status != statefs.Failed || rec.Error == nil || rec.Error.Message != "exit code 3" {
		t.Errorf("%s %+v", rec.Status, rec.Error)
	}
}

// TestStartRemovesAnEmptyLog: a daemon that was killed between recording the end and removing the
// empty log leaves the removal to the next daemon. A log that is not empty stays, even if it was
// written after the end.
func TestStartRemovesAnEmptyLog(t *testing.T) {
	t.Parallel()
	b := setup(t, silentJobs, nil)
	empty, late := b.submit("silent", `{}`), b.submit("silent", `{}`)
	for _, id := range []statefs.ID{empty, late} {
		b.awaitEnd(id)
		b.awaitNoFile(b.tree.LogPath(id))
	}
	must(t, b.stop())
	for id, text := range map[statefs.ID]string{empty: "", late: "late\n"} {
		must(t, os.WriteFile(b.tree.LogPath(id), []byte(text), 0o640))
		must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running)), nil, 0o640))
	}
	b.start()
	b.awaitNoFile(b.tree.LogPath(empty))
	b.awaitNoFile(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(late, statefs.Running)))
	if data, err := os.ReadFile(b.tree.LogPath(late)); string(data) != "late\n" {
		t.Errorf("the log that was written late: %q, %v", data, err)
	}
}
