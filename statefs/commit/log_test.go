package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/journal"
)

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(2 * time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// bench is a Log whose record files are in memory.
type bench struct {
	*Log
	t    *testing.T
	dir  string
	stop context.CancelFunc
	done chan error

	mu     sync.Mutex
	files  map[string]string
	writes int
	full   error         // what a write returns
	wrote  chan struct{} // closed and replaced with each write
	synced []string
	hold   chan struct{} // if not nil, Sync waits until it is closed
}

func start(t *testing.T, o Options) *bench {
	t.Helper()
	return startAt(t, t.TempDir(), o)
}

func startAt(t *testing.T, dir string, o Options) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, done: make(chan error, 1), files: make(map[string]string), wrote: make(chan struct{})}
	r, _ := read(t, dir)
	o.Journal.SegmentSize = 64 << 10
	o.Write, o.Sync = b.write, b.sync
	o.Retryable = func(err error) bool { return errors.Is(err, syscall.ENOSPC) }
	l, err := Open(r, 0, o)
	must(t, err)
	b.Log = l
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go func() { b.done <- l.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, r.Close()) })
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns a reader behind all frames of a journal, and the lines behind its checkpoint.
func read(t *testing.T, dir string) (*journal.Reader, []string) {
	t.Helper()
	r, err := journal.NewReader(dir)
	must(t, err)
	lines := map[uint64]string{}
	for f, err := range r.Frames() {
		must(t, err)
		for i, e := range f.Entries {
			lines[f.First+uint64(i)] = string(e)
		}
	}
	var left []string
	for n := r.End().Checkpoint + 1; n <= r.End().Entry; n++ {
		left = append(left, lines[n])
	}
	return r, left
}

func (b *bench) write(id string, record []byte, _ bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	if b.full == nil {
		b.files[id] = string(record)
	}
	close(b.wrote)
	b.wrote = make(chan struct{})
	return b.full
}

func (b *bench) sync(ids []string) error {
	b.mu.Lock()
	hold := b.hold
	b.synced = append(b.synced, ids...)
	b.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return nil
}

// await waits until a condition on the files holds.
func (b *bench) await(what string, holds func() bool) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !holds() {
		wrote := b.wrote
		b.mu.Unlock()
		select {
		case <-wrote:
		case <-time.After(2 * time.Minute):
			b.t.Errorf("waited in vain: %s", what)
			b.mu.Lock()
			b.t.FailNow()
		}
		b.mu.Lock()
	}
}

func (b *bench) setFull(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = err
}

func change(id, what string) Change {
	return Change{ID: id, Record: fmt.Appendf(nil, `{"is":%q}`, what)}
}

func TestARecordFileFollowsItsLine(t *testing.T) {
	t.Parallel()
	b := start(t, Options{})
	n := b.Append(change("a", "new"))
	if record, behind := b.Read("a"); !behind || string(record) != fmt.Sprintf("{\"is\":\"new\",\"lsn\":%d}\n", n) {
		t.Errorf("read %q, %t", record, behind)
	}
	must(t, b.Wait("a"))
	b.await("the file", func() bool { return b.files["a"] == fmt.Sprintf("{\"is\":\"new\",\"lsn\":%d}\n", n) })
	b.stop()
	must(t, <-b.done)
	if _, behind := b.Read("a"); behind {
		t.Error("it is behind after the end")
	}
	if s := b.Status(); s.Behind != 0 {
		t.Errorf("%d operations are behind after the end", s.Behind)
	}
}

// Two changes in a short time cost one write of the file, and the second is in it.
func TestChangesShareAWrite(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour})
	b.Append(change("a", "new"))
	last := change("a", "done")
	last.HasEnded = true
	b.Append(last)
	b.await("the end", func() bool { return strings.Contains(b.files["a"], "done") })
	b.stop()
	must(t, <-b.done)
	if b.writes != 1 {
		t.Errorf("%d writes", b.writes)
	}
}

// What has been deleted is not written again: not by its own line, and not by an earlier one.
func TestDeletedOperationsAreNotWritten(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour})
	b.Append(change("a", "new"), change("b", "new"))
	b.Append(Change{ID: "a"})
	must(t, b.Wait("a"))
	b.AwaitWriter("a")
	b.stop()
	must(t, <-b.done)
	if _, is := b.files["a"]; is || !strings.Contains(b.files["b"], "new") {
		t.Errorf("the files are %q", b.files)
	}
}

// A checkpoint passes only over lines whose file is synced and whose marker is seen.
func TestCheckpointsWaitForFilesAndMarkers(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour, Interval: time.Hour})
	moved := change("a", "new")
	moved.MovesMarker = true
	b.Append(change("c", "before"))
	b.Append(moved)
	b.Append(change("b", "new"))
	must(t, b.Wait("b"))
	must(t, b.checkpoint(t.Context()))
	if !slices.Equal(slices.Sorted(slices.Values(b.synced)), []string{"a", "b", "c"}) {
		t.Errorf("synced %q", b.synced)
	}
	b.stop()
	if err := <-b.done; !errors.Is(err, ErrBehind) {
		t.Errorf("the marker of a is not seen, and Run returns %v", err)
	}
	_, left := read(t, b.dir)
	if len(left) != 2 || !strings.Contains(left[0], "new") || !strings.Contains(left[1], "new") {
		t.Errorf("behind the checkpoint are %q", left)
	}
	again := startAt(t, b.dir, Options{Delay: time.Hour, Interval: time.Hour})
	again.Append(moved)
	again.Seen("a")
	must(t, again.checkpoint(t.Context()))
	again.stop()
	must(t, <-again.done)
	if _, left := read(t, b.dir); len(left) != 0 {
		t.Errorf("behind the last checkpoint are %q", left)
	}
}

// TestCheckpointsGoNoFurtherThanTheFollower: lines that the follower of the journal lacks are kept.
func TestCheckpointsGoNoFurtherThanTheFollower(t *testing.T) {
	t.Parallel()
	var asked atomic.Uint64
	b := start(t, Options{Interval: time.Millisecond, Followed: func(_ context.Context, upTo uint64) uint64 {
		asked.Store(upTo)
		return min(upTo, 1)
	}})
	for _, id := range []string{"a", "b", "c"} {
		b.Append(Change{ID: id, Record: []byte(`{"is":1}`), IsNew: true, HasEnded: true})
	}
	until(t, "a checkpoint asks the follower about all lines", func() bool { return asked.Load() == 3 })
	b.stop()
	must(t, <-b.done)
	r, _ := read(t, b.dir)
	must(t, r.Close())
	if end := r.End(); end.Checkpoint != 1 || end.Entry != 3 {
		t.Errorf("%+v", end)
	}
}

// A checkpoint is in the journal only after the files are synced.
func TestCheckpointsFollowTheSync(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour, Interval: time.Hour})
	b.hold = make(chan struct{})
	b.Append(change("a", "new"))
	done := make(chan error, 1)
	go func() { done <- b.checkpoint(t.Context()) }()
	b.await("the file", func() bool { return b.files["a"] != "" })
	for range 3 { // each makes a frame, and a frame has the checkpoint if there is one
		must(t, b.Note([]byte(`{}`)))
	}
	if _, left := read(t, b.dir); len(left) != 4 {
		t.Errorf("before the sync, behind the checkpoint are %q", left)
	}
	close(b.hold)
	must(t, <-done)
	b.stop()
	must(t, <-b.done)
}

// On a full disk a file is written again until there is room. Until then changes are committed, submits are refused,
// and a stop does not wait.
func TestAFullDiskIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Millisecond})
	b.setFull(syscall.ENOSPC)
	b.Append(change("a", "new"))
	b.await("a try", func() bool { return b.writes > 0 })
	b.Append(change("a", "paused"))
	must(t, b.Wait("a"))
	b.await("another try", func() bool { return b.writes > 1 })
	if err := b.Room(1); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("room: %v", err)
	}
	b.setFull(nil)
	b.await("the file", func() bool { return strings.Contains(b.files["a"], "paused") })
	b.setFull(syscall.ENOSPC)
	b.Append(change("a", "done"))
	b.stop()
	if err := <-b.done; !errors.Is(err, ErrBehind) {
		t.Errorf("Run returns %v", err)
	}
	_, left := read(t, b.dir)
	if len(left) == 0 || !strings.Contains(left[len(left)-1], "done") {
		t.Errorf("behind the last checkpoint are %q", left)
	}
}

// Any other error of a file ends the Log, and later changes fail.
func TestAFailedDiskEndsTheLog(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Millisecond})
	b.setFull(syscall.EIO)
	b.Append(change("a", "new"))
	if err := <-b.done; !errors.Is(err, syscall.EIO) {
		t.Errorf("Run returns %v", err)
	}
	b.Append(change("b", "new"))
	for _, id := range []string{"a", "b", "c"} {
		if err := b.Wait(id); !errors.Is(err, syscall.EIO) {
			t.Errorf("waiting for %s: %v", id, err)
		}
	}
	if err := b.Room(1); err == nil {
		t.Error("there is room")
	}
}

// Many goroutines change many operations, while checkpoints are made; each file has the last change in the end.
func TestManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Millisecond, Interval: 5 * time.Millisecond})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				id := fmt.Sprintf("%d-%d", g, i%7)
				c := change(id, strconv.Itoa(i))
				c.MovesMarker, c.HasEnded = i%2 == 0, i%5 == 0
				b.Append(c)
				if err := b.Wait(id); err != nil {
					t.Error(err)
				}
				b.Seen(id)
			}
		})
	}
	all.Wait()
	b.stop()
	must(t, <-b.done)
	for g := range 8 {
		for i := 193; i < 200; i++ {
			id := fmt.Sprintf("%d-%d", g, i%7)
			if !strings.Contains(b.files[id], strconv.Quote(strconv.Itoa(i))) {
				t.Errorf("the file of %s is %q, want %d", id, b.files[id], i)
			}
		}
	}
	if _, left := read(t, b.dir); len(left) != 0 {
		t.Errorf("%d lines are behind the last checkpoint", len(left))
	}
}

// A change that is appended while the Log ends is refused, or it is in a file.
func TestNothingIsCommittedBehindTheEnd(t *testing.T) {
	t.Parallel()
	for range 30 {
		b := start(t, Options{})
		b.Append(change("a", "new"))
		must(t, b.Wait("a"))
		committed := make(chan []string, 1)
		begun := make(chan struct{})
		go func() {
			var ids []string
			for i := 0; ; i++ {
				id := "s" + strconv.Itoa(i)
				if b.Append(change(id, "new")); b.Wait(id) != nil {
					break
				}
				if ids = append(ids, id); i == 3 {
					close(begun)
				}
			}
			committed <- ids
		}()
		<-begun
		b.stop()
		err := <-b.done
		ids := <-committed
		if errors.Is(err, ErrBehind) {
			continue // the next start reads the journal
		}
		must(t, err)
		for _, id := range ids {
			if b.files[id] == "" {
				t.Fatalf("%s is committed and in no file, and Run returned nil", id)
			}
		}
	}
}

// A journal that is full while a checkpoint takes long grows instead of waiting for the next checkpoint, which waits
// for lines that are not written yet.
func TestAFullJournalDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Interval: time.Millisecond, Journal: journal.Options{MaxSegments: 4}})
	b.hold = make(chan struct{})
	b.Append(change("first", "new"))
	b.await("the file", func() bool { return b.files["first"] != "" })
	long := strings.Repeat("y", 4000)
	for i := range 100 { // more than 4 segments of 64 KiB
		b.Append(change("op"+strconv.Itoa(i), long))
	}
	until(t, "the journal is full", func() bool { return b.Status().Full >= 3 })
	close(b.hold)
	must(t, b.Wait("op99"))
	b.stop()
	must(t, <-b.done)
}

// Submits are not refused any more once the operation is deleted whose file could not be written.
func TestADeletedOperationLacksNothing(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Millisecond})
	b.setFull(syscall.ENOSPC)
	b.Append(change("a", "new"))
	until(t, "its file cannot be written", func() bool { return b.Status().Unwritten != nil })
	b.Append(Change{ID: "a"})
	must(t, b.Wait("a"))
	if err := b.Room(1); err != nil {
		t.Errorf("room: %v", err)
	}
}

// After Forget no file of the operations is written, whatever was appended before.
func TestForgottenOperationsAreNotWritten(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour})
	b.Append(change("a1", "new"), change("a2", "new"), change("b1", "new"))
	must(t, b.Forget([]byte(`{"deleted_day":"a"}`), func(id string) bool { return id[0] == 'a' }))
	if _, behind := b.Read("a1"); behind {
		t.Error("a1 is still read")
	}
	b.stop()
	must(t, <-b.done)
	if len(b.files) != 1 || b.files["b1"] == "" {
		t.Errorf("the files are %q", b.files)
	}
}

// A checkpoint never names a line that is not in the journal: a later use gives that number to another line.
func TestCheckpointsNameLinesOfTheJournal(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Delay: time.Hour, Interval: time.Hour, Journal: journal.Options{MaxSegments: 1}})
	must(t, b.Note([]byte(`{"x":"`+strings.Repeat("z", 60000)+`"}`)))
	var gone []Change
	for i := range 50 {
		gone = append(gone, Change{ID: "a deleted operation with a long name, number " + strconv.Itoa(i)})
	}
	b.Append(gone...) // it waits for a segment
	must(t, b.checkpoint(t.Context()))
	r, _ := read(t, b.dir)
	if end := r.End(); end.Checkpoint > end.Entry {
		t.Errorf("the journal ends with line %d, and the checkpoint is %d", end.Entry, end.Checkpoint)
	}
	b.stop()
	must(t, <-b.done)
}
