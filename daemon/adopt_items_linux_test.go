package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// Items in progress continue after a restart, and the others follow. Each runs once, and the log is
// the same as without the restart.
func TestItemsOutliveAKilledDaemon(t *testing.T) {
	t.Parallel()
	for _, job := range []string{"each", "together"} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, end meanwhile %t", job, ends), func(t *testing.T) {
				t.Parallel()
				k := prepareKept(t, allKept)
				began := map[string]int{"each": 2, "together": 4}[job]
				id, did, release := k.heldItems(job,
					"echo item $1; echo $1 >>did; test $1 -lt 2 || while test -e hold; do sleep 0.02; done; echo end $1", began)
				if ends {
					release()
					k.poll("the items under way end", func() bool { return len(k.itemReports(id)) == began-1 })
				}
				k.start()
				if !ends {
					release()
				}
				rec := k.awaitEnd(id)
				if rec.Status != statefs.Completed || rec.Run != 1 || rec.Processed != 6 || rec.Rescues != 0 {
					t.Errorf("record %+v", rec)
				}
				if strings.Count(did(), "\n") != 6 {
					t.Errorf("done were %q", did())
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

// heldItems starts a daemon in its own process, submits a job with the script in an own folder, kills the daemon once
// as many items have appended a line to the file did there, and returns the content of did. release removes the file
// hold, for which the items wait.
func (k *kept) heldItems(job, text string, began int) (id statefs.ID, did func() string, release func()) {
	k.t.Helper()
	child, dir := k.child(), k.t.TempDir()
	did = func() string {
		lines, err := os.ReadFile(filepath.Join(dir, "did"))
		if !errors.Is(err, fs.ErrNotExist) {
			must(k.t, err)
		}
		return string(lines)
	}
	hold := filepath.Join(dir, "hold")
	must(k.t, os.WriteFile(hold, nil, 0o600))
	id = k.submit(job, script("cd "+dir+"; "+text))
	k.poll("items are under way", func() bool { return strings.Count(did(), "\n") == began })
	k.kill(child)
	return id, did, func() { must(k.t, os.Remove(hold)) }
}

// itemJournal returns the path of the journal of the items of an operation.
func (k *kept) itemJournal(id statefs.ID) string {
	return filepath.Join(work.ScratchFolder(k.tree.LogPath(id)), "items.journal")
}

// wrongJournals put something else in the place of a journal.
var wrongJournals = map[string]func(journal string) error{
	"nothing": func(string) error { return nil },
	"folder":  func(journal string) error { return os.Mkdir(journal, 0o700) },
	"fifo":    func(journal string) error { return unix.Mkfifo(journal, 0o600) },
	"link":    func(journal string) error { return os.Symlink(journal+"-elsewhere", journal) },
	"long line": func(journal string) error {
		return os.WriteFile(journal, bytes.Repeat([]byte("x"), 17<<20), 0o600)
	},
}

// Without the journal nothing is certain of the items: the command that goes on ends its item, and a new run does what
// has no result.
func TestItemsWithoutTheirJournal(t *testing.T) {
	t.Parallel()
	for _, job := range []string{"each", "together"} {
		for kind, put := range wrongJournals {
			t.Run(job+", "+kind, func(t *testing.T) {
				t.Parallel()
				k := prepareKept(t, allKept)
				began := map[string]int{"each": 1, "together": 3}[job]
				id, _, release := k.heldItems(job, "echo $1 >>did; while test -e hold; do sleep 0.02; done", began)
				must(t, errors.Join(os.Remove(k.itemJournal(id)), put(k.itemJournal(id))))
				k.start()
				release()
				if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Processed != 6 || rec.Rescues != 1 {
					t.Errorf("record %+v, error %+v, log %s", rec, rec.Error, k.log(id))
				}
			})
		}
	}
}

// A wrong file that takes the name of the journal during a run goes to corrupt/, and the run goes on.
func TestWrongItemJournalDuringARun(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	k.start()
	for kind, put := range wrongJournals {
		until := k.fifo("until " + kind)
		id := k.begun("each", `echo begins; test $1 != 1 || read x <"`+until+`" || true`)
		must(t, errors.Join(os.Remove(k.itemJournal(id)), put(k.itemJournal(id))))
		k.open(until)
		if rec := k.awaitEnd(id); rec.Status != statefs.Completed || rec.Processed != 6 || rec.Run != 1 {
			t.Errorf("%s: record %+v, error %+v, log %s", kind, rec, rec.Error, k.log(id))
		}
	}
	if moved, err := filepath.Glob(filepath.Join(k.dir, "corrupt", "*items.journal")); err != nil || len(moved) != 3 {
		t.Errorf("corrupt/ has %v, %v", moved, err)
	}
}

// A daemon that cannot list the items ends the commands of the one before: another run would do their items again
// beside them.
func TestItemsThatCannotBeListedAnyMore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	must(t, os.WriteFile(list, []byte("a\nb\n"), 0o600))
	k := prepareKept(t, fmt.Sprintf("group: test\nname: listed\nitems: {list: %q}\nparallel: 2\n"+
		"run: [sh, -c, 'echo $$ >>%s/did; exec sleep 1000']\n", list, dir))
	k.start()
	id := k.submit("listed", "{}")
	var did []byte
	k.poll("items are under way", func() bool {
		did, _ = os.ReadFile(filepath.Join(dir, "did"))
		return strings.Count(string(did), "\n") == 2
	})
	k.leave()
	must(t, os.Remove(list))
	k.start()
	if rec := k.awaitEnd(id); rec.Status != statefs.Failed || rec.Error.Code != "items" {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	for text := range strings.FieldsSeq(string(did)) {
		if pid, err := strconv.Atoi(text); err != nil || lives(pid) {
			t.Errorf("command %s goes on, %v", text, err)
		}
	}
}

// Files that appear or disappear between two daemons change the numbers of the items, but not which
// items are done.
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
			k := prepareKept(t,
				fmt.Sprintf("group: test\nname: files\nitems: {glob: %q}\nparallel: %s\nrun: [sh, -c, 'echo $1 >>%s/did; while test -e %s; do sleep 0.02; done', sh, '${item}']\n", files+"/*", parallel, dir, hold))
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

// A daemon may be killed after it made the files of an item and before it started the command. The
// next daemon starts the item with new files.
func TestFilesOfAnItemThatNeverBegan(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	id, _, release := k.heldItems("together", "echo $1 >>did; while test -e hold; do sleep 0.02; done; "+
		`test $1 -gt 3 || echo "{\"n\": $1}" >$JOBDIR_RESULT`, 3)
	files := work.ScratchFolder(k.tree.LogPath(id))
	for _, name := range []string{"item-4.log", "result-4.json", "item-5.log"} {
		must(t, os.WriteFile(filepath.Join(files, name), []byte(`{"of": "an earlier one"}`), 0o600))
	}
	release()
	k.start()
	rec := k.awaitEnd(id)
	if rec.Result != statefs.Success || rec.Processed != 6 || rec.Run != 1 {
		t.Errorf("record %+v, error %+v", rec, rec.Error)
	}
	for i := 1; i <= 3; i++ {
		if !strings.Contains(string(rec.Footer), fmt.Sprintf(`{"filename":"%d","n":%d}`, i, i)) {
			t.Errorf("item %d lacks its result: %s", i, rec.Footer)
		}
	}
	if said := k.log(id) + string(rec.Footer); strings.Contains(said, "an earlier one") {
		t.Errorf("what another command left is taken for its own: %s", said)
	}
}

// If the keeper dies, the items in progress have no outcome; they run again if the job is retried.
func TestKeeperIsKilledDuringItems(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(allKept, "parallel: 3", "parallel: 3\nretry: {max_attempts: 2}"))
	k.start()
	dir := t.TempDir()
	id := k.submit("together",
		script("echo $1 $JOBDIR_RUN >>"+dir+"/did; test $1 = 1 || test $JOBDIR_RUN = 2 || exec sleep 1000"))
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
	found, err := filepath.Glob(filepath.Join(work.ScratchFolder(k.tree.LogPath(id)), "item-*.exit"))
	must(k.t, err)
	return found
}
