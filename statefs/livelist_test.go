package statefs

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

func wantLive(t *testing.T, o *Owner, want ...ID) {
	t.Helper()
	live := make(map[ID]bool)
	for _, id := range want {
		live[id] = true
	}
	got, err := o.Live.IDs()
	check(t, err)
	if !maps.Equal(got, live) {
		t.Errorf("live are %v, want %v", got, live)
	}
}

func TestLiveListFollowsOperations(t *testing.T) {
	t.Parallel()
	o := own(t)
	wantLive(t, o)
	first, second := submit(t, o.Tree), submit(t, o.Tree)
	wantLive(t, o, first.ID, second.ID)
	check(t, first.Apply(Queued, CauseCancel, testTime))
	check(t, finish(o, first, Queued))
	wantLive(t, o, second.ID)
}

func TestLiveListWithTornLines(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := []ID{newID(t, o), newID(t, o), newID(t, o), newID(t, o), newID(t, o), newID(t, o)}
	put(t, o.Tree, strings.Join([]string{
		"+" + id[0].String() + "\n",
		"\n", "x\n", "+\n", "-\n", "+no ID\n", "?" + id[1].String() + "\n", id[1].String() + "\n",
		"+" + id[1].String()[:20] + "+" + id[2].String() + "\n", // an incomplete line and a whole one
		strings.Repeat("\x00", 200_000) + "+" + id[3].String() + "\n",
		strings.Repeat("long ", 50_000) + "\n",
		"+" + id[4].String() + "\n-" + id[4].String() + "\n",
		"+" + id[5].String()[:30],
	}, ""), liveFile)
	wantLive(t, o, id[0], id[2], id[3])
	// The next line follows the incomplete one.
	o.live.Add(id[1])
	wantLive(t, o, id[0], id[1], id[2], id[3])
}

func TestLiveListIsCompacted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := ownTree(t, openTree(t, dir, Options{Durability: Process}))
	other := openTree(t, dir, Options{Durability: Process}) // another process, with the old list open
	kept, gone := submit(t, o.Tree), submit(t, other)
	check(t, o.Live.Set(map[ID]bool{kept.ID: true}))
	data, err := os.ReadFile(filepath.Join(dir, liveFile))
	check(t, err)
	if string(data) != "+"+kept.ID.String()+"\n" {
		t.Errorf("the compacted list is %q", data)
	}
	later, last := submit(t, other), submit(t, o.Tree)
	wantLive(t, o, kept.ID, later.ID, last.ID)
	if gone.ID == later.ID {
		t.Error("an ID came twice")
	}
	check(t, o.Live.Set(nil))
	wantLive(t, o)
}

func TestLiveListOfManyWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := ownTree(t, openTree(t, dir, Options{Durability: Process}))
	trees := []*Tree{o.Tree, openTree(t, dir, Options{Durability: Process})}
	var mu sync.Mutex
	var all []ID
	var wg sync.WaitGroup
	for i := range 8 {
		ids := []ID{newID(t, o), newID(t, o), newID(t, o)}
		all = append(all, ids...)
		wg.Go(func() {
			for _, id := range ids {
				mu.Lock()
				tree := trees[i%2]
				mu.Unlock()
				tree.live.Add(id)
			}
		})
	}
	wg.Wait()
	wantLive(t, o, all...)
}

// TestLiveListThatIsNoFile: the list is a cache: a file of another kind with its name blocks
// nothing and is not followed.
func TestLiveListThatIsNoFile(t *testing.T) {
	t.Parallel()
	o := own(t)
	path := filepath.Join(o.Dir(), liveFile)
	target := put(t, o.Tree, "precious", "target")
	for name, place := range map[string]func() error{
		"fifo":   func() error { return unix.Mkfifo(path, 0o600) },
		"link":   func() error { return os.Symlink(target, path) },
		"folder": func() error { return os.Mkdir(path, 0o750) },
	} {
		check(t, place())
		submit(t, o.Tree)
		if _, err := o.Live.IDs(); !errors.Is(err, files.ErrIrregular) {
			t.Errorf("%s: %v", name, err)
		}
		check(t, os.Remove(path))
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("the target of the link holds %q, %v", got, err)
	}
	last := submit(t, o.Tree)
	wantLive(t, o, last.ID)
}

// TestLiveListIsTrimmed: a daemon that runs for years must not keep a line for every ended
// operation.
func TestLiveListIsTrimmed(t *testing.T) {
	t.Parallel()
	o := own(t)
	stays := submit(t, o.Tree)
	ended := newID(t, o)
	line := "+" + ended.String() + "\n-" + ended.String() + "\n"
	f, err := os.OpenFile(filepath.Join(o.Dir(), liveFile), os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString(strings.Repeat(line, listLimit/len(line)+1))
	check(t, errors.Join(err, f.Close()))
	check(t, o.Live.Trim())
	info, err := os.Stat(filepath.Join(o.Dir(), liveFile))
	check(t, err)
	if info.Size() > 200 {
		t.Errorf("the list still has %d bytes", info.Size())
	}
	later := submit(t, o.Tree)
	wantLive(t, o, stays.ID, later.ID)
	check(t, o.Live.Trim()) // short enough: nothing happens
	wantLive(t, o, stays.ID, later.ID)
}

// TestRecordListIsTrimmed: the list keeps one row of each live operation and nothing of an ended one.
func TestRecordListIsTrimmed(t *testing.T) {
	t.Parallel()
	o := own(t)
	stays, ends := submit(t, o.Tree), submit(t, o.Tree)
	file := filepath.Join(o.Dir(), recordsFile)
	note := func(rec *Record) {
		data, err := o.readRecordFile(rec.ID)
		check(t, err)
		o.Records.noteWritten(rec.ID, data)
	}
	size := func() int64 {
		info, err := os.Stat(file)
		check(t, err)
		return info.Size()
	}
	for o.Records.lines < 10 || len(o.Records.pending) > 0 || size() < listLimit {
		note(stays)
		note(ends)
	}
	check(t, ends.Apply(Queued, CauseCancel, testTime))
	check(t, finish(o, ends, Queued))
	check(t, o.Records.Trim())
	if size() > 4096 || o.Records.lines != 1 {
		t.Errorf("the list has %d bytes and %d lines, want one", size(), o.Records.lines)
	}
	note(stays)
	check(t, o.Records.close())
	check(t, o.Records.BeginStart())
	defer o.Records.EndStart()
	rows := o.Records.rows.Load()
	v, ok := o.Records.versionOf(stays.ID)
	if record := rows.find(stays.ID, v); !ok || record == nil || len(rows.last) != 1 {
		t.Errorf("the list has rows of %d operations, and %q of the live one", len(rows.last), record)
	}
	v.changed = v.changed.Add(1)
	if record := rows.find(stays.ID, v); record != nil {
		t.Errorf("a row counts for a file with another time of change: %s", record)
	}
}

// TestRecordListThatIsDamaged: whatever the list holds, a start has the records of the files.
func TestRecordListThatIsDamaged(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	data, err := o.readRecordFile(rec.ID)
	check(t, err)
	o.Records.noteWritten(rec.ID, data)
	check(t, o.Records.close())
	row, err := os.ReadFile(filepath.Join(o.Dir(), recordsFile))
	check(t, err)
	v, _ := o.Records.versionOf(rec.ID)
	for at := 0; at < len(row); at += 5 {
		damaged := slices.Clone(row)
		damaged[at] ^= 1
		for what, text := range map[string][]byte{
			"a bit": damaged, "zeros": slices.Concat(row[:at], make([]byte, 5000)), "the end": row[:at],
			"two rows in one": slices.Concat(row[:at], row[at/2:]), "an endless line": bytes.Repeat(row[:at], 100),
		} {
			check(t, os.WriteFile(filepath.Join(o.Dir(), recordsFile), text, 0o600))
			check(t, o.Records.BeginStart())
			found := o.Records.rows.Load().find(rec.ID, v)
			got, _, err := o.ReadPublished(rec.ID)
			o.Records.EndStart()
			if err != nil || got.ID != rec.ID || found != nil && !bytes.Equal(append(found, '\n'), data) {
				t.Fatalf("%s at %d: %v, and the list has %q", what, at, err, found)
			}
		}
	}
}

// TestLinesOfTheLiveListWait: while they may wait, one write takes many lines, and a checkpoint does not wait for it.
func TestLinesOfTheLiveListWait(t *testing.T) {
	t.Parallel()
	o := own(t)
	ids := []ID{newID(t, o), newID(t, o), newID(t, o)}
	written := func() string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(o.dir, liveFile))
		if !errors.Is(err, os.ErrNotExist) {
			check(t, err)
		}
		return string(data)
	}
	o.live.waits = func() bool { return true }
	synctest.Test(t, func(t *testing.T) {
		o.live.Add(ids[0])
		o.live.Add(ids[1])
		<-time.After(listDelay - 1) // on the clock of the test
		if got := written(); got != "" {
			t.Errorf("%q is written at once", got)
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		want := "+" + ids[0].text + "\n+" + ids[1].text + "\n"
		if got := written(); got != want {
			t.Errorf("%q is written, want %q", got, want)
		}
		o.live.remove(ids[0])
		check(t, o.Journal.syncFiles(nil))
		want += "-" + ids[0].text + "\n"
		if got := written(); got != want {
			t.Errorf("%q is written at a checkpoint, want %q", got, want)
		}
		o.live.Add(ids[2])
		wantLive(t, o, ids[1], ids[2])
		o.live.Add(ids[0])
		check(t, o.live.close())
		wantLive(t, o, ids...)
	})
}

// createdListener calls a function for each new marker.
type createdListener func(Name)

func (createdListener) Expect(...*Record)   {}
func (createdListener) Withdraw(...*Record) {}
func (createdListener) Announce(*Record)    {}
func (createdListener) Start(*Record)       {}
func (c createdListener) Created(name Name) { c(name) }

// TestLiveListHasEachMarkerThatIsSeen: a checkpoint may cover the line of a submit as soon as its marker is seen. A
// start takes a marker that is missing for removed only if the list has its operation.
func TestLiveListHasEachMarkerThatIsSeen(t *testing.T) {
	t.Parallel()
	o, end := useJournal(t, t.TempDir())
	defer end()
	created := 0
	o.SetSubmitListener(createdListener(func(name Name) {
		created++
		wantLive(t, o, name.ID)
	}))
	submit(t, o.Tree)
	if created != 1 {
		t.Errorf("%d markers were announced, want 1", created)
	}
}
