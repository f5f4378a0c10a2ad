package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

const waitingJobs = `{group: test, name: wait, handler: wait, params: {n: {type: integer, default: 0}}}`

// opened returns the records of a day that are opened while do runs, as the kernel reports it.
func opened(t *testing.T, day string, do func()) []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	defer func() { must(t, unix.Close(fd)) }()
	_, err = unix.InotifyAddWatch(fd, day, unix.IN_OPEN)
	must(t, err)
	do()
	found, buf := make(map[string]bool), make([]byte, 1<<20)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return slices.Sorted(maps.Keys(found))
		}
		must(t, err)
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(rest[12]) + int(rest[13])<<8 // of the name
			if rest[5]&(unix.IN_Q_OVERFLOW>>8) != 0 {
				t.Fatal("the kernel has dropped events")
			}
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:size], "\x00"))
			if strings.HasSuffix(name, ".json") {
				found[name] = true
			}
			rest = rest[size:]
		}
	}
}

// waitingBench is a storage with operations that wait in a paused lane, and no daemon.
type waitingBench struct {
	*bench
	day string
	ids []statefs.ID
}

func (b *bench) commitBy(method statefs.CommitMethod) {
	b.t.Helper()
	must(b.t, b.tree.Close())
	o := commitOptions(statefs.Options{Now: b.now})
	o.Commit.Method = method
	var err error
	b.tree, err = statefs.Open(b.dir, o)
	must(b.t, err)
}

func prepareWaiting(t *testing.T, count int, method statefs.CommitMethod) *waitingBench {
	t.Helper()
	b := prepare(t, waitingJobs, testHandlers)
	b.commitBy(method)
	b.put("all.paused", "")
	b.start()
	w := &waitingBench{bench: b}
	for n := range count {
		w.ids = append(w.ids, b.submit("wait", fmt.Sprintf(`{"n": %d}`, n)))
	}
	for _, id := range w.ids {
		b.awaitState(id, statefs.Queued)
	}
	w.day = filepath.Join(b.dir, "operations", w.ids[0].Day())
	must(t, b.stop())
	return w
}

func (w *waitingBench) file(id statefs.ID) string { return filepath.Join(w.day, id.String()+".json") }

// params returns the parameters of an operation as lists have them.
func (w *waitingBench) params(id statefs.ID) string {
	w.t.Helper()
	for _, l := range w.daemon.Live() {
		if l.ID == id {
			row, err := l.Row.Unpack()
			must(w.t, err)
			return row.Params
		}
	}
	return ""
}

// A start with waiting operations opens none of their records, and knows all of them.
func TestStartOpensNoRecordOfWhatWaits(t *testing.T) {
	t.Parallel()
	w := prepareWaiting(t, 200, statefs.CommitJournal)
	for range 2 {
		if files := opened(t, w.day, w.start); len(files) > 0 {
			t.Errorf("a start with %d waiting operations opens %d records", len(w.ids), len(files))
		}
		for n, id := range w.ids {
			if got, want := w.params(id), fmt.Sprintf(`{"n":%d}`, n); got != want {
				t.Errorf("%s has %s, want %s", id, got, want)
			}
		}
		must(t, w.stop())
	}
}

// With commit: files too, once a start has read the records.
func TestSecondStartOnFilesOpensNoRecord(t *testing.T) {
	t.Parallel()
	w := prepareWaiting(t, 50, statefs.CommitFiles)
	w.poll("the records are settled", func() bool {
		info, err := os.Stat(w.file(w.ids[len(w.ids)-1]))
		return err == nil && time.Since(info.ModTime()) > 2*time.Second
	})
	if files := opened(t, w.day, w.start); len(files) != len(w.ids) {
		t.Errorf("the first start opens %d records, want all of %d", len(files), len(w.ids))
	}
	must(t, w.stop())
	if files := opened(t, w.day, w.start); len(files) > 0 {
		t.Errorf("the second start opens %d records", len(files))
	}
}

// What has changed since the list was written counts: the files of an operation are the truth.
func TestStartBelievesNoOldCopyOfARecord(t *testing.T) {
	t.Parallel()
	edit := func(w *waitingBench, id statefs.ID) []byte {
		data, err := os.ReadFile(w.file(id))
		must(w.t, err)
		return bytes.ReplaceAll(data, []byte(`{"n":3}`), []byte(`{"n":9}`))
	}
	for name, tc := range map[string]struct {
		change func(w *waitingBench, id statefs.ID)
		check  func(w *waitingBench, id statefs.ID)
		opens  int // of 5 records
	}{
		"a record that was replaced": {
			func(w *waitingBench, id statefs.ID) {
				must(w.t, os.WriteFile(w.file(id)+"~", edit(w, id), 0o600))
				must(w.t, os.Rename(w.file(id)+"~", w.file(id)))
			}, nil, 1,
		},
		"a record that was written in place, with its old time": {
			func(w *waitingBench, id statefs.ID) {
				info, err := os.Stat(w.file(id))
				must(w.t, err)
				must(w.t, os.WriteFile(w.file(id), edit(w, id), 0o600))
				must(w.t, os.Chtimes(w.file(id), info.ModTime(), info.ModTime()))
			}, nil, 1,
		},
		"a storage that was copied": {
			func(w *waitingBench, id statefs.ID) {
				must(w.t, os.WriteFile(w.file(id), edit(w, id), 0o600))
				must(w.t, exec.CommandContext(w.t.Context(), "cp", "-a", w.dir, w.dir+"-copy").Run())
				c := prepareAt(w.t, w.dir+"-copy", waitingJobs, testHandlers)
				c.commitBy(statefs.CommitJournal)
				w.bench, w.day = c, filepath.Join(c.dir, "operations", id.Day())
			}, nil, 5,
		},
		"a list of before later changes, as a crash can leave it": {
			func(w *waitingBench, id statefs.ID) {
				list := filepath.Join(w.dir, "records.list")
				old, err := os.ReadFile(list)
				must(w.t, err)
				must(w.t, os.WriteFile(w.file(id), edit(w, id), 0o600))
				w.start()
				w.touch(id, statefs.Pause) // writes the record
				w.awaitState(id, statefs.Paused)
				must(w.t, w.stop())
				must(w.t, os.WriteFile(list, old, 0o600))
			}, func(w *waitingBench, id statefs.ID) { w.awaitState(id, statefs.Paused) }, 1,
		},
		"a start that committed by files": {
			func(w *waitingBench, id statefs.ID) {
				must(w.t, os.WriteFile(w.file(id), edit(w, id), 0o600))
				w.commitBy(statefs.CommitFiles)
				w.start()
				w.touch(id, statefs.Pause)
				w.awaitState(id, statefs.Paused)
				must(w.t, w.stop())
				w.commitBy(statefs.CommitJournal)
			}, func(w *waitingBench, id statefs.ID) { w.awaitState(id, statefs.Paused) }, 1,
		},
		"a damaged list": {
			func(w *waitingBench, id statefs.ID) {
				list := filepath.Join(w.dir, "records.list")
				data, err := os.ReadFile(list)
				must(w.t, err)
				must(w.t, os.WriteFile(list, bytes.Replace(data, []byte(`{"n":3}`), []byte(`{"n":5}`), 1), 0o600))
			}, func(w *waitingBench, id statefs.ID) {
				if got := w.params(id); got != `{"n":3}` {
					w.t.Errorf("lists have %s of a damaged row", got)
				}
			}, 1,
		},
		"a removed list": {
			func(w *waitingBench, _ statefs.ID) { must(w.t, os.Remove(filepath.Join(w.dir, "records.list"))) },
			func(*waitingBench, statefs.ID) {}, 5,
		},
		"something else in the place of the list": {
			func(w *waitingBench, _ statefs.ID) {
				must(w.t, os.Remove(filepath.Join(w.dir, "records.list")))
				must(w.t, unix.Mkfifo(filepath.Join(w.dir, "records.list"), 0o600))
			},
			func(*waitingBench, statefs.ID) {}, 5,
		},
		"a marker that was moved": {
			func(w *waitingBench, id statefs.ID) {
				w.mv(statefs.MarkerName(id, statefs.Queued), statefs.MarkerName(id, statefs.Paused))
			},
			func(w *waitingBench, id statefs.ID) { w.awaitRecord(id, statefs.Paused) }, 0,
		},
		"a marker that was moved without meaning": {
			func(w *waitingBench, id statefs.ID) {
				w.mv(statefs.MarkerName(id, statefs.Queued), statefs.MarkerName(id, statefs.WaitingApproval))
			},
			func(w *waitingBench, id statefs.ID) { w.awaitState(id, statefs.Queued) }, 0,
		},
		"a marker that was removed": {
			func(w *waitingBench, id statefs.ID) {
				must(w.t, os.Remove(filepath.Join(w.tree.JobsDir(), statefs.MarkerName(id, statefs.Queued))))
			},
			func(w *waitingBench, id statefs.ID) {
				if rec := w.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Reason != "marker missing" {
					w.t.Errorf("it is %s, %q", rec.Status, rec.Reason)
				}
			}, 5, // the search for the marker compares the others with their records
		},
		"a record that was removed": {
			func(w *waitingBench, id statefs.ID) { must(w.t, os.Remove(w.file(id))) },
			func(w *waitingBench, id statefs.ID) {
				if got := w.params(id); got != "" {
					w.t.Errorf("lists have %s of an operation without a record", got)
				}
			}, 0,
		},
		"a record that is damaged": {
			func(w *waitingBench, id statefs.ID) { must(w.t, os.WriteFile(w.file(id), []byte("{"), 0o600)) },
			func(w *waitingBench, id statefs.ID) { w.awaitState(id, statefs.FailedManual) }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepareWaiting(t, 5, statefs.CommitJournal)
			id := w.ids[3]
			tc.change(w, id)
			files := opened(t, w.day, w.start)
			if len(files) != tc.opens {
				t.Errorf("the start opens the records %q, want %d", files, tc.opens)
			}
			if tc.check != nil {
				tc.check(w, id)
				return
			}
			if got := w.params(id); got != `{"n":9}` {
				t.Errorf("lists have %s of a record that has {\"n\":9}", got)
			}
		})
	}
}
