package journal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// withoutWriter opens the journal of a folder without its writer, so that a test calls the steps of it one by one.
func withoutWriter(t *testing.T, dir string, o Options) *Journal {
	t.Helper()
	r, _ := readAll(t, dir)
	j, err := Open(r, 0, o)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { j.prepare(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done; must(t, j.closeFile()) })
	return j
}

// entryAt fails unless a Reader finds a number of entries, all from the first one on.
func entryAt(t *testing.T, dir string, last uint64) {
	t.Helper()
	r, got := readAll(t, dir)
	if r.End().Entry != last || uint64(len(got)) != last {
		t.Fatalf("%d entries, the last is %d, want %d: %+v", len(got), r.End().Entry, last, r.End())
	}
}

// A frame without entries has the number of the first entry that is not on the disk. An entry that waits counts as
// missing, also while its commit is under way.
func TestFramesWithoutEntriesKeepTheNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := withoutWriter(t, dir, small)
	j.Append([]byte("one"))
	must(t, j.commit(t.Context(), j.take()))
	j.Append([]byte("two"))
	j.Viewed(1)
	must(t, j.writeViewed())
	entryAt(t, dir, 1)
	waiting := j.take() // as a commit that waits for a segment
	must(t, j.writeViewed())
	entryAt(t, dir, 1)
	j.Checkpoint(1)
	must(t, j.writeCheckpoint(t.Context()))
	entryAt(t, dir, 1)
	must(t, j.commit(t.Context(), waiting))
	entryAt(t, dir, 2)
}

// A checkpoint that is recorded while a commit waits for a segment can be read after a kill, and so can what follows.
func TestCheckpointWhileACommitWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	var last *Commit
	for range 100 {
		last = b.Append(bytes.Repeat([]byte("x"), 1000))
	}
	until(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.closed) == small.MaxSegments-1 && b.wanted > 0
	})
	r, _ := readAll(t, dir)
	written := r.End().Entry
	b.Checkpoint(1)
	until(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.released == 1 })
	entryAt(t, dir, written)
	for done, through := false, uint64(2); !done; through++ {
		b.Checkpoint(through)
		select {
		case <-last.Done():
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	must(t, last.Err())
	b.end()
	if r, _ = readAll(t, dir); r.End().Entry != 100 {
		t.Fatalf("%+v", r.End())
	}
}

// What was appended before the end of the context of Run is written, although there is no segment yet.
func TestTheRestIsWrittenBeforeTheFirstSegmentExists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := readAll(t, dir)
	j, err := Open(r, 0, small)
	must(t, err)
	c := j.Append([]byte("one"))
	large := j.Append(bytes.Repeat([]byte("x"), 50<<10))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	must(t, j.Run(ctx))
	must(t, c.Wait(t.Context()))
	must(t, large.Wait(t.Context()))
	entryAt(t, dir, 2)
	if err := j.Append([]byte("two")).Wait(t.Context()); !errors.Is(err, ErrClosed) || err.Error() != ErrClosed.Error() {
		t.Fatal(err)
	}
}

// Nor does it wait for a checkpoint, which may not come any more.
func TestTheRestOfAFullJournalIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	for range 200 {
		b.Append(bytes.Repeat([]byte("x"), 1000))
	}
	until(t, func() bool { return b.Status().Full >= small.MaxSegments-1 })
	b.end()
	entryAt(t, dir, 200)
	b = start(t, dir, small) // the next daemon removes what is too much
	b.put("further")
	b.Checkpoint(201)
	until(t, func() bool { return b.Status().Segments <= small.MaxSegments })
	b.end()
}

// hooked is a context that calls a function when it is asked for its channel.
type hooked struct {
	context.Context //nolint:containedctx // it is one
	asked           func()
}

func (c hooked) Done() <-chan struct{} { c.asked(); return c.Context.Done() }

// An append right before the end is written too, also when the writer finds both at once.
func TestAnAppendBeforeTheEndIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range uint64(20) {
		r, _ := readAll(t, dir)
		j, err := Open(r, 0, small)
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var last *Commit
		must(t, j.Run(hooked{ctx, sync.OnceFunc(func() { last = j.Append([]byte("last")); stop() })}))
		must(t, last.Wait(t.Context()))
		if r, _ = readAll(t, dir); r.End().Entry != n+1 {
			t.Fatalf("%+v", r.End())
		}
	}
}

// refuse makes each try to grow the journal of a folder fail, until the returned function is called.
func refuse(t *testing.T, dir string) (allow func()) {
	t.Helper()
	name := filepath.Join(dir, newName)
	must(t, os.MkdirAll(filepath.Join(name, "not empty"), 0o750))
	return func() { must(t, os.RemoveAll(name)) }
}

// Without a segment the rest cannot be written, and Run does not wait for one forever.
func TestTheRestIsRefusedWithoutASegment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refuse(t, dir)
	b := start(t, dir, small)
	c := b.Append([]byte("one"))
	until(t, func() bool { return b.Status().Lack != nil })
	b.stop()
	err := <-b.done
	full, is := errors.AsType[*FullError](err)
	if !is || full.Folder != dir || !errors.Is(err, syscall.EISDIR) || !errors.Is(c.Err(), syscall.EISDIR) {
		t.Fatalf("Run: %v; the commit: %v", err, c.Err())
	}
}

// A task that fails is tried once a second, however often a segment is asked for.
func TestATaskThatFailsIsNotTriedInALoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	allow := refuse(t, dir)
	began := time.Now()
	b := start(t, dir, small)
	var last *Commit
	for range 200 {
		last = b.Append([]byte("entry"))
		b.Checkpoint(0)
		<-time.After(time.Millisecond)
	}
	until(t, func() bool { return b.Status().Lack != nil })
	b.mu.Lock()
	tries := b.highest // each has a number of its own
	b.mu.Unlock()
	if most := 2 + uint64(time.Since(began)/retryAfter); tries > most {
		t.Fatalf("%d tries in %s, want %d at most", tries, time.Since(began), most)
	}
	full, is := errors.AsType[*FullError](b.Room(t.Context(), 1))
	if !is || full.Folder != dir {
		t.Fatalf("room without a segment: %v", full)
	}
	allow()
	must(t, last.Wait(t.Context()))
	must(t, b.Room(t.Context(), 1))
	if lack := b.Status().Lack; lack != nil {
		t.Fatal(lack)
	}
	b.end()
}

// The segment that the writer is about to start counts too.
func TestMaxSegmentsAtATurn(t *testing.T) {
	t.Parallel()
	r, _ := readAll(t, t.TempDir())
	o := small
	o.MaxSegments = 2
	j, err := Open(r, 0, o)
	must(t, err)
	prepare := func(want task) {
		t.Helper()
		did, err := j.prepareOne(nothing)
		if must(t, err); did != want {
			t.Fatalf("task %d, want %d", did, want)
		}
	}
	prepare(grow)
	j.Append([]byte("one"))
	must(t, j.commit(t.Context(), j.take()))
	prepare(grow)
	prepare(nothing)
	if s, _, _ := j.findSpare(100, false); s.number != 2 {
		t.Fatalf("%+v", s)
	}
	prepare(nothing)
	must(t, j.closeFile())
}

// A free segment that a person has removed is not missed.
func TestRemovedFreeSegmentsAreNotMissed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := small
	o.MaxSegments = 8
	b := start(t, dir, o)
	for range 60 {
		b.put(strings.Repeat("x", 1000))
	}
	b.Checkpoint(60)
	var free []segment
	until(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		free = slices.Clone(b.free)
		return b.released == 60 && len(b.spare) > 0 && len(free) > 0
	})
	for _, s := range free {
		if err := os.Remove(filepath.Join(dir, segmentName(s.number))); !errors.Is(err, os.ErrNotExist) {
			must(t, err)
		}
	}
	for range 60 {
		b.put(strings.Repeat("x", 1000))
	}
	b.end()
}

// An entry with a line end would make the frame unreadable, and all frames behind it.
func TestAnEntryWithALineEndIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put("one")
	if err := b.Append([]byte("t\nwo")).Wait(t.Context()); err == nil || err.Error() != "an entry for the journal has a line end" {
		t.Fatal(err)
	}
	if err := <-b.done; err == nil {
		t.Fatal("Run returned no error")
	}
	entryAt(t, dir, 1)
}

func TestFullErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		&os.PathError{Op: "write", Path: "/d/new.journal", Err: syscall.ENOSPC}: "the journal in /d cannot grow: write /d/new.journal: " +
			"no space left on device; free space on the disk of this folder",
		&os.PathError{Op: "open", Path: "/d/new.journal", Err: syscall.EMFILE}: "the journal in /d cannot grow: open /d/new.journal: " +
			"too many open files; raise the limit of open files (ulimit -n, LimitNOFILE= in a unit of systemd)",
		&os.PathError{Op: "open", Path: "/d/new.journal", Err: syscall.EISDIR}: "the journal in /d cannot grow: open /d/new.journal: " +
			"is a directory; the next try is in a second",
	} {
		if got := (&FullError{"/d", err}).Error(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// What is larger than a segment has room too: it gets one of its own.
func TestRoomForALargeFrame(t *testing.T) {
	t.Parallel()
	b := start(t, t.TempDir(), small)
	must(t, b.Room(t.Context(), 50<<10))
	b.put(strings.Repeat("x", 50<<10))
	must(t, b.Room(t.Context(), 50<<10))
	b.end()
}

const childVariable = "JOBDIR_JOURNAL_TEST_CHILD"

// inChild runs the calling test again in a child process. In the parent it returns false when the child has succeeded.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	command.Env = append(os.Environ(), childVariable+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return false
}

// Without free descriptors neither the writer nor the preparer ends: they say what is missing, and go on when it is
// there again. The end of the context ends them.
func TestOutOfDescriptorsIsALack(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max})) }
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put(strings.Repeat("x", 6<<10))
	spare := func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.spare) > 0 }
	lacks := func() bool { return errors.Is(b.Status().Lack, syscall.EMFILE) }
	until(t, spare)

	none()
	large := b.Append(bytes.Repeat([]byte("x"), 11<<10)) // the writer opens the spare segment
	until(t, lacks)
	full, is := errors.AsType[*FullError](b.Room(t.Context(), small.SegmentSize))
	if !is || !errors.Is(full, syscall.EMFILE) {
		t.Fatal(full)
	}
	b.Checkpoint(1) // and a checkpoint has no file to be written to
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	must(t, large.Wait(t.Context()))
	until(t, func() bool { return b.Status().Lack == nil && spare() })

	b.mu.Lock()
	taken := b.spare[0] // as if the writer had taken it
	b.spare = nil
	b.mu.Unlock()
	none()
	b.Checkpoint(2) // the preparer makes a segment
	b.Append([]byte("three"))
	b.demand <- struct{}{}
	until(t, lacks)
	b.put("four") // into the current segment
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	until(t, func() bool { return b.Status().Lack == nil && spare() })
	must(t, os.Remove(filepath.Join(dir, segmentName(taken.number))))
	if r, _ := readAll(t, dir); r.End().Entry != 4 {
		t.Fatalf("%+v", r.End())
	}

	// With one descriptor, the writer closes the current segment before it opens the next one.
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 100, Max: limit.Max}))
	var fillers []*os.File
	for {
		filler, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		must(t, err)
		fillers = append(fillers, filler)
	}
	b.put(strings.Repeat("x", 11<<10))
	for _, filler := range fillers {
		must(t, filler.Close())
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	until(t, func() bool { return b.Status().Lack == nil && spare() })

	none()
	last := b.Append(bytes.Repeat([]byte("x"), 11<<10))
	until(t, lacks)
	b.stop()
	if err := <-b.done; !errors.Is(err, syscall.EMFILE) || !errors.Is(last.Err(), syscall.EMFILE) {
		t.Fatalf("Run: %v; the commit: %v", err, last.Err())
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
}
