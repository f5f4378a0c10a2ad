package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/notify"
)

// small are options with which few appends fill a segment.
var small = Options{SegmentSize: 16 << 10, MaxSegments: 4, Reserve: 2 << 10}

// bench is a journal that runs.
type bench struct {
	*Journal
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// start opens the journal of a folder behind all of its frames.
func start(t *testing.T, dir string, o Options) *bench {
	t.Helper()
	r, _ := readAll(t, dir)
	j, err := Open(r, 0, o)
	must(t, err)
	b := &bench{Journal: j, t: t, done: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go func() { b.done <- j.Run(ctx) }()
	return b
}

// end stops it.
func (b *bench) end() {
	b.t.Helper()
	b.stop()
	must(b.t, <-b.done)
}

// put appends and waits.
func (b *bench) put(entries ...string) {
	b.t.Helper()
	must(b.t, b.Append(lines(entries...)...).Wait(b.t.Context()))
}

func lines(entries ...string) (all [][]byte) {
	for _, e := range entries {
		all = append(all, []byte(e))
	}
	return all
}

// readAll reads a folder without an error, and returns its entries by number.
func readAll(t *testing.T, dir string) (*Reader, map[uint64]string) {
	t.Helper()
	r, got, err := read(t, dir)
	must(t, err)
	return r, got
}

func read(t *testing.T, dir string) (*Reader, map[uint64]string, error) {
	t.Helper()
	for {
		r, got, err := tryRead(t, dir)
		if r != nil {
			t.Cleanup(func() { must(t, r.Close()) })
		}
		if !errors.Is(err, os.ErrNotExist) { // otherwise the writer has released a segment in between
			return r, got, err
		}
	}
}

func tryRead(t *testing.T, dir string) (*Reader, map[uint64]string, error) {
	t.Helper()
	r, err := NewReader(dir)
	if err != nil {
		return nil, nil, err
	}
	got := map[uint64]string{}
	for f, err := range r.Frames() {
		if err != nil {
			return r, got, err
		}
		for i, e := range f.Entries {
			got[f.First+uint64(i)] = string(e)
		}
	}
	return r, got, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEntriesAreReadBack(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		o := small
		o.Durable, o.Origin = durable, Origin{Storage: "mark", Place: "8:1", Boot: "boot", Mount: ""}
		b := start(t, dir, o)
		b.put("one")
		b.put("two", "", "four")
		if next := b.Next(); next != 5 {
			t.Fatalf("the next entry is %d", next)
		}
		b.end()
		r, got := readAll(t, dir)
		want := map[uint64]string{1: "one", 2: "two", 3: "", 4: "four"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		end := r.End()
		if end.Frame != 2 || end.Entry != 4 || end.Header.Storage != "mark" || end.Header.Mount != "-" || end.Header.Number != 1 {
			t.Fatalf("%+v", end)
		}
		b = start(t, dir, o)
		b.put("five")
		b.end()
		if r, got = readAll(t, dir); got[5] != "five" || r.End().Frame != 3 || r.End().Header.Number != 2 {
			t.Fatalf("%v %+v", got, r.End())
		}
	}
}

// Appends of many goroutines, through many segments: the order is that of the numbers, no entry is missing, and no more
// files exist than allowed.
func TestManySegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	var mu sync.Mutex // held from Next to Append
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 500 {
				if err := b.Room(t.Context(), 200); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				n := b.Next()
				c := b.Append(fmt.Appendf(nil, "%d %0100d", n, n), fmt.Appendf(nil, "%d", n+1))
				mu.Unlock()
				if err := c.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				b.Viewed(n + 1)
				if n%16 == 1 {
					b.Checkpoint(n - n%16)
				}
			}
		})
	}
	writers.Wait()
	status := b.Status()
	if status.Segments > small.MaxSegments {
		t.Fatalf("%+v", status)
	}
	b.end()
	r, got := readAll(t, dir)
	if r.End().Entry != 8000 || r.End().Checkpoint < 7900 {
		t.Fatalf("%+v", r.End())
	}
	for n, e := range got {
		if first, _, _ := strings.Cut(e, " "); first != strconv.FormatUint(n, 10) {
			t.Fatalf("entry %d is %s", n, e)
		}
	}
	for n := r.End().Checkpoint + 1; n <= 8000; n++ {
		if got[n] == "" {
			t.Fatalf("entry %d is missing", n)
		}
	}
}

func TestALargeFrameGetsASegmentOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	large := strings.Repeat("x", 50<<10)
	b.put("before")
	b.put(large, "with it")
	after := strings.Repeat("y", 5<<10) // does not fit behind it
	b.put(after)
	if _, got := readAll(t, dir); got[1] != "before" || got[2] != large || got[3] != "with it" || got[4] != after {
		t.Fatalf("%d entries", len(got))
	}
	b.Checkpoint(4)
	until(t, func() bool { // it is not used again
		all, err := filepath.Glob(filepath.Join(dir, "*"))
		must(t, err)
		return !slices.ContainsFunc(all, func(name string) bool {
			info, err := os.Stat(name)
			return err == nil && info.Size() > small.SegmentSize
		})
	})
	b.end()
}

// When all segments wait for a checkpoint, an append waits; the checkpoint lets it go on.
func TestFullJournalWaitsForACheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	var last *Commit
	for range 200 {
		last = b.Append(bytes.Repeat([]byte("x"), 1000))
	}
	until(t, func() bool { return b.Status().Full >= small.MaxSegments-1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Room(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("room in a full journal: %v", err)
	}
	done := false
	for through := uint64(1); !done; through++ {
		b.Checkpoint(through)
		select {
		case <-last.Done():
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	must(t, last.Err())
	b.Checkpoint(200)
	must(t, b.Room(t.Context(), 1))
	b.end()
	if _, got := readAll(t, dir); len(got[200]) != 1000 {
		t.Fatal("the last entry is missing")
	}
}

// What was viewed is recorded when the journal falls idle, and the frame that says so is replaced by the next one.
func TestViewedIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put("one")
	b.Viewed(1)
	until(t, func() bool { r, _ := readAll(t, dir); return r.End().Viewed == 1 })
	b.put("two")
	b.Viewed(2)
	until(t, func() bool { r, _ := readAll(t, dir); return r.End().Viewed == 2 })
	b.Viewed(3) // also long after the last frame
	until(t, func() bool { r, _ := readAll(t, dir); return r.End().Viewed == 3 })
	b.end()
	if r, got := readAll(t, dir); len(got) != 2 || r.End().Frame != 2 {
		t.Fatalf("%v, %+v", got, r.End())
	}
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// The last frame that a crash cut is not read, at whatever byte; all before it are.
func TestTornFrameIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put("one")
	b.put("two", "three")
	b.end()
	name := filepath.Join(dir, segmentName(1))
	whole, err := os.ReadFile(name)
	must(t, err)
	first := headerSize + frameHeaderSize + len("one\n")
	second := first + frameHeaderSize + len("two\nthree\n")
	for cut := first; cut < second; cut++ {
		torn := slices.Clone(whole)
		clear(torn[cut:])
		must(t, os.WriteFile(name, torn, 0o600))
		if r, got := readAll(t, dir); len(got) != 1 || r.End().Entry != 1 {
			t.Fatalf("cut at %d: %v", cut, got)
		}
		must(t, os.WriteFile(name, whole[:cut], 0o600)) // a file that is too short
		if _, got := readAll(t, dir); len(got) != 1 {
			t.Fatalf("cut off at %d: %v", cut, got)
		}
		torn = slices.Clone(whole)
		torn[cut] ^= 0x20
		must(t, os.WriteFile(name, torn, 0o600))
		if _, got := readAll(t, dir); len(got) != 1 {
			t.Fatalf("changed at %d: %v", cut, got)
		}
	}
}

// Each changed byte of a frame that others follow is damage, and nothing behind it is returned.
func TestDamageBeforeAGoodFrameIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put("one")
	b.put("two")
	b.end()
	b = start(t, dir, small) // in a second segment
	b.put("three")
	b.end()
	for segment, lost := range map[uint64]int{1: frameHeaderSize + 4, 2: 0} {
		name := filepath.Join(dir, segmentName(segment))
		whole, err := os.ReadFile(name)
		must(t, err)
		for at := headerSize; at < headerSize+lost; at++ {
			bad := slices.Clone(whole)
			bad[at] ^= 0x20
			must(t, os.WriteFile(name, bad, 0o600))
			_, got, err := read(t, dir)
			damage, is := errors.AsType[*DamageError](err)
			if !is || damage.Offset != int64(headerSize) || len(got) != 0 {
				t.Fatalf("byte %d changed: %v, %v", at, got, err)
			}
		}
		must(t, os.WriteFile(name, whole, 0o600))
	}
	must(t, os.Remove(filepath.Join(dir, segmentName(1))))
	if _, got := readAll(t, dir); len(got) != 1 { // as after a checkpoint
		t.Fatal(got)
	}
}

// A segment that is missing between two others is damage.
func TestGapBetweenSegmentsIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		b := start(t, dir, small)
		b.put("entry")
		b.end()
	}
	must(t, os.Remove(filepath.Join(dir, segmentName(2))))
	_, got, err := read(t, dir)
	if _, is := errors.AsType[*DamageError](err); !is || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
}

// Frames of a segment that is used again do not count, wherever the new frames end.
func TestOldFramesOfASegmentDoNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	for n := range 400 {
		b.put(strings.Repeat("x", 100))
		b.Checkpoint(uint64(n))
		if n%40 == 0 {
			got := ""
			sum, err := Read(dir, func(f *Frame) error { got = string(f.Entries[len(f.Entries)-1]); return nil })
			must(t, err) // segments are being used again beside it
			if sum.Entry != uint64(n)+1 || got == "" {
				t.Fatalf("after %d: %+v", n, sum)
			}
		}
	}
	b.end()
}

// Beside a process that writes, a Reader returns what was written before, and takes nothing for damage.
func TestReaderBesideAWriter(t *testing.T) {
	t.Parallel()
	for _, checkpoints := range []bool{false, true} {
		dir := t.TempDir()
		o := Options{SegmentSize: 256 << 10, MaxSegments: 20}
		b := start(t, dir, o)
		done := make(chan struct{})
		var committed atomic.Uint64
		go func() {
			defer close(done)
			for n := range uint64(3000) {
				if err := b.Append(bytes.Repeat([]byte("x"), int(n%700))).Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				committed.Store(n + 1)
				if checkpoints {
					b.Checkpoint(n)
				}
			}
		}()
		for !notify.IsClosed(done) {
			least := committed.Load()
			r, _, err := tryRead(t, dir)
			if released := checkpoints && errors.Is(err, os.ErrNotExist); !released && (err != nil || r.End().Entry < least) {
				t.Errorf("%v, want entry %d at least", err, least)
			}
			if r != nil {
				must(t, r.Close())
			}
		}
		b.end()
	}
}

// After the disk refused a write, everything fails that was not durable before.
func TestAfterAFailedWriteNothingIsAccepted(t *testing.T) {
	t.Parallel()
	b := start(t, t.TempDir(), small)
	b.put("one")
	must(t, b.file.Close()) // the next write fails
	if err := b.Append([]byte("two")).Wait(t.Context()); err == nil {
		t.Fatal("committed to a closed file")
	}
	if err := <-b.done; err == nil {
		t.Fatal("Run returned no error")
	}
	if err := b.Append([]byte("three")).Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := b.Room(t.Context(), 1); err == nil {
		t.Fatal("room in a closed journal")
	}
}

func FuzzReader(f *testing.F) {
	whole := SegmentHeader{Number: 1, Started: time.Unix(1, 0)}.encode()
	for n := range uint64(3) {
		frame := append(make([]byte, frameHeaderSize), "entry\nanother\n"...)
		seal(frame, 1, frameHeader{number: n + 1, first: 2*n + 1, count: 2})
		whole = append(whole, frame...)
	}
	f.Add(whole[headerSize:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frames []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, segmentName(1)), append(whole[:headerSize:headerSize], frames...), 0o600))
		r, got, err := read(t, dir)
		if err == nil && uint64(len(got)) > r.End().Entry {
			t.Fatalf("%d entries, the last is %d", len(got), r.End().Entry)
		}
		again, _ := NewReader(dir)
		at := int64(headerSize)
		for f, err := range again.Frames() { // what was read is what was written, byte for byte
			if err != nil {
				break
			}
			data := append(make([]byte, frameHeaderSize), bytes.Join(append(f.Entries, nil), newline)...)
			seal(data, 1, frameHeader{number: f.Number, first: f.First, count: len(f.Entries), viewed: f.Viewed, checkpoint: f.Checkpoint})
			if f.Offset != at || !bytes.Equal(data[frameHeaderSize:], frames[at-headerSize+frameHeaderSize:][:len(data)-frameHeaderSize]) {
				t.Fatalf("frame %d at %d", f.Number, f.Offset)
			}
			at += int64(len(data))
		}
	})
}

// keepWriting appends until stop is closed, in small segments that are used again all the time.
func keepWriting(t *testing.T, b *bench, stop <-chan struct{}) (wait func() (last uint64)) {
	t.Helper()
	var writer sync.WaitGroup
	var last uint64
	writer.Go(func() {
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := b.Append(fmt.Appendf(nil, "%d %0200d", n, n)).Wait(t.Context()); err != nil {
				t.Error(err)
				return
			}
			last = n
			b.Viewed(n)
			b.Checkpoint(n - n%7)
		}
	})
	return func() uint64 {
		writer.Wait()
		return last
	}
}

// A reader beside a writer gets what was written before, without a gap to the end, and never takes a frame that is
// being written for damage.
func TestReadBesideAWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	stop := make(chan struct{})
	wait := keepWriting(t, b, stop)
	for seen, reads := uint64(0), 0; reads < 300 || seen < 2000; reads++ {
		var last uint64
		_, err := Read(dir, func(f *Frame) error {
			for i, e := range f.Entries {
				last = f.First + uint64(i)
				if number, _, _ := strings.Cut(string(e), " "); number != strconv.FormatUint(last, 10) {
					return fmt.Errorf("entry %d is %s", last, e)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			break
		}
		seen = max(seen, last)
	}
	close(stop)
	last := wait()
	b.end()
	sum, err := Read(dir, func(*Frame) error { return nil })
	must(t, err)
	if sum.Entry != last || sum.First == 0 || sum.Entry-sum.First+1 != uint64(sum.Entries) || sum.Segments == 0 {
		t.Fatalf("%+v after %d", sum, last)
	}
}

// A mirror has everything from its first update on, also what the journal has released since.
func TestMirrorOfAJournalInUse(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	b := start(t, dir, small)
	b.put("0 first")
	m, err := NewMirror(dir, to)
	must(t, err)
	must(t, m.Update())
	b.put("1 second")
	must(t, m.Update()) // in front of it is a frame without entries
	for n := uint64(3); n < 1000; n++ {
		b.put(fmt.Sprintf("%d %0200d", n, n))
		b.Viewed(n)
		b.Checkpoint(n - n%7)
		if n%20 == 0 {
			must(t, m.Update())
		}
	}
	must(t, m.Update())
	must(t, m.Close())
	b.end()
	r, got := readAll(t, to)
	if len(got) != 999 || r.End().Entry != 999 || got[1] != "0 first" {
		t.Fatalf("%d entries, %+v", len(got), r.End())
	}
	if _, kept := readAll(t, dir); len(kept) == 999 {
		t.Fatal("no segment was used again: the test shows nothing")
	}
}

// A mirror that is updated too rarely has a gap, and a reader of it reports that.
func TestMirrorThatIsLateHasAGap(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	b := start(t, dir, small)
	m, err := NewMirror(dir, to)
	must(t, err)
	b.put("first")
	must(t, m.Update())
	for n := uint64(2); n < 1000; n++ {
		b.put(fmt.Sprintf("%d %0200d", n, n))
		b.Checkpoint(n)
	}
	b.end()
	must(t, m.Update())
	must(t, m.Close())
	if _, err := Read(to, func(*Frame) error { return nil }); !isDamage(err) {
		t.Fatal(err)
	}
}

func isDamage(err error) bool {
	_, is := errors.AsType[*DamageError](err)
	return is
}

// A segment whose header cannot be read is not taken for a spare one.
func TestDamagedHeaderIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	b.put("one", "two")
	b.put("three")
	b.end()
	name := filepath.Join(dir, segmentName(1))
	data, err := os.ReadFile(name)
	must(t, err)
	clear(data[:headerSize])
	must(t, os.WriteFile(name, data, 0o600))
	r, _, err := read(t, dir)
	if !isDamage(err) || !strings.Contains(err.Error(), "header") {
		t.Fatal(err)
	}
	var rest []string
	for f, err := range r.Rest() {
		must(t, err)
		rest = append(rest, string(bytes.Join(f.Entries, []byte(" "))))
	}
	if fmt.Sprint(rest) != "[one two three]" || fmt.Sprint(r.Damaged()) != "["+segmentName(1)+"]" {
		t.Fatal(rest, r.Damaged())
	}
}

// Behind damage, the frames that can be read are found, also in the segments that follow.
func TestRestBehindDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, dir, small)
	for n := range 120 {
		b.put(fmt.Sprintf("%d %0150d", n+1, n+1))
		if n == 0 {
			b.Viewed(1)
		}
	}
	b.end()
	name := filepath.Join(dir, segmentName(2))
	data, err := os.ReadFile(name)
	must(t, err)
	data[headerSize+2*frameHeaderSize] ^= 1
	must(t, os.WriteFile(name, data, 0o600))
	r, got, err := read(t, dir)
	if !isDamage(err) {
		t.Fatal(err)
	}
	bad := uint64(len(got)) + 1
	want := bad + 1 // the damage is in one frame
	for f, err := range r.Rest() {
		must(t, err)
		if len(f.Entries) > 0 && f.First != want {
			t.Fatalf("entry %d, want %d", f.First, want)
		}
		want = f.Last() + 1
	}
	if want != 121 {
		t.Fatalf("the last is %d", want-1)
	}
	if all := r.Damaged(); len(all) < 2 || all[0] != segmentName(2) {
		t.Fatal(all)
	}
}
