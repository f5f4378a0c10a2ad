package events

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

func jobs(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("job%d", i+1)
	}
	return out
}

// matchesFiles checks that frames are the given jobs with consecutive numbers from first on.
func inOrder(t *testing.T, frames []Frame, first uint64, want []string) {
	t.Helper()
	for i, f := range frames {
		if f.Job != want[i] || f.Seq != first+uint64(i) {
			t.Fatalf("event %d is number %d of job %q (%s), want %d of %q", i, f.Seq, f.Job, f.JSON, first+uint64(i), want[i])
		}
		if !strings.HasPrefix(string(f.JSON), fmt.Sprintf(`{"seq":%d,"type":"transition","at":`, f.Seq)) ||
			strings.Contains(string(f.JSON), "\n") {
			t.Fatalf("event %d is %q", i, f.JSON)
		}
	}
}

func isGap(t *testing.T, f Frame, from, to uint64, reason string) {
	t.Helper()
	if f.Type != Missing || *f.Gap != (api.EventGap{From: from, To: to, Reason: reason}) {
		t.Fatalf("got %s, want a gap from %d to %d, reason %s", f.JSON, from, to, reason)
	}
}

func TestFollowLiveAndAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	live := b.log.Follow(Filter{}, Now)
	defer live.Close()
	b.publish(jobs(300)...)
	inOrder(t, b.some(live, 300), 1, jobs(300))
	if live.Position() != 300 || b.log.Last() != 300 {
		t.Fatalf("position %d, last %d, want 300", live.Position(), b.log.Last())
	}
	again := b.log.Follow(Filter{}, 100)
	defer again.Close()
	inOrder(t, b.some(again, 200), 101, jobs(300)[100:])
}

func TestSequenceContinuesAfterCleanShutdown(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Recent: 4})
	for n := range 5 {
		b.publish(jobs(10)[n*2 : n*2+2]...)
		b.reopen()
	}
	r := b.log.Follow(Filter{}, 0)
	defer r.Close()
	inOrder(t, b.some(r, 10), 1, jobs(10))
	if frames, more := r.Take(); len(frames) > 0 || more {
		t.Fatalf("there is more: %v", frames)
	}
}

func TestCrashLeavesGapAndNoDuplicateSequence(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	b.publish("a", "b")
	live := b.log.Follow(Filter{Groups: []string{"other"}}, 2)
	defer live.Close()
	b.crash()
	b.publish("c")
	for _, after := range []uint64{0, 1, 2, 3, 50_000} {
		r := b.log.Follow(Filter{}, after)
		frames := b.some(r, map[uint64]int{0: 4, 1: 3}[after]+map[bool]int{true: 2}[after >= 2])
		last := len(frames) - 1
		isGap(t, frames[last-1], 3, 100_000, GapCrash)
		if frames[last].Job != "c" || frames[last].Seq != 100_002 || frames[last-1].Seq != 100_001 {
			t.Errorf("after %d: %s, then %s", after, frames[last-1].JSON, frames[last].JSON)
		}
		r.Close()
	}
}

func TestTornLineIsTruncated(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	b.publish("a", "b")
	name := filepath.Join(b.owner.EventsDir(), segmentName(1))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	// What a power cut may leave: a block of zeros, and the beginning of a line.
	if _, err := f.WriteString(strings.Repeat("\x00", 5000) + "\n{\"seq\":3,\"ty"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b.crash()
	b.publish("c")
	r := b.log.Follow(Filter{}, 0)
	defer r.Close()
	frames := b.some(r, 4)
	inOrder(t, frames[:2], 1, []string{"a", "b"})
	isGap(t, frames[2], 3, 100_000, GapCrash)
	if frames[3].Job != "c" {
		t.Fatalf("then came %s", frames[3].JSON)
	}
	data, err := os.ReadFile(name)
	if err != nil || strings.Contains(string(data), "\x00") || strings.Count(string(data), "\n") != 4 {
		t.Fatalf("the segment is %q, %v", data, err)
	}
}

// A reader that takes nothing while thousands of events pass gets every one of them from the disk.
func TestSlowReaderLosesNoRetainedEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Recent: 8, Segment: 10_000})
	slow := b.log.Follow(Filter{}, Now)
	defer slow.Close()
	filtered := b.log.Follow(Filter{Jobs: []string{"job7", "g/job900"}}, Now)
	defer filtered.Close()
	all := jobs(2000)
	b.publish(all[:500]...)
	inOrder(t, b.some(slow, 250), 1, all)
	b.publish(all[500:]...)
	inOrder(t, b.some(slow, 1750), 251, all[250:])
	if two := b.some(filtered, 2); two[0].Seq != 7 || two[1].Seq != 900 {
		t.Fatalf("filtered: %s and %s", two[0].JSON, two[1].JSON)
	}
	b.publish("job7")
	if f := b.next(filtered); f.Seq != 2001 {
		t.Fatalf("filtered: %s", f.JSON)
	}
}

func TestPrunedEventsAreAGap(t *testing.T) {
	t.Parallel()
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, Options{Recent: 8, Retention: Retention{Bytes: 40_000}})
		slow := b.log.Follow(Filter{Jobs: []string{"none"}}, Now) // a gap passes every filter
		defer slow.Close()
		for _, job := range jobs(1000) {
			b.publish(job)
		}
		gap := b.next(slow)
		if gap.Type != Missing || gap.Gap.From != 1 || gap.Gap.Reason != GapRetention || gap.Gap.To < 100 ||
			gap.Gap.To > 900 || gap.Seq != gap.Gap.To {
			t.Fatalf("got %s", gap.JSON)
		}
		r := b.log.Follow(Filter{}, gap.Seq)
		defer r.Close()
		inOrder(t, b.some(r, 1000-int(gap.Seq)), gap.Seq+1, jobs(1000)[gap.Seq:])
		segments, err := listSegments(b.owner.EventsDir())
		var sum int64
		for _, s := range segments {
			sum += s.size
		}
		if err != nil || sum > 50_000 || len(segments) < 4 {
			t.Errorf("%d segments with %d bytes, %v", len(segments), sum, err)
		}
	})
	t.Run("age", func(t *testing.T) {
		t.Parallel()
		b := setup(t, Options{Recent: 1, Retention: Retention{Age: time.Hour}})
		b.publish("a", "b")
		b.jump.Store(int64(2 * time.Hour))
		b.publish("c", "d")
		r := b.log.Follow(Filter{}, 0)
		defer r.Close()
		frames := b.some(r, 3)
		isGap(t, frames[0], 1, 2, GapRetention)
		inOrder(t, frames[1:], 3, []string{"c", "d"})
	})
}

func TestOverflowIsAGap(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Pending: 10})
	r := b.log.Follow(Filter{}, Now)
	defer r.Close()
	now := time.Now()
	entered, goOn := make(chan struct{}), make(chan struct{})
	hold := func() { close(entered); <-goOn }
	b.hold.Store(&hold) // the goroutine of the log blocks at its next write
	b.log.Publish(api.Event{Type: Transition, Job: "first", At: now})
	<-entered
	for _, job := range jobs(25) {
		b.log.Publish(api.Event{Type: Transition, Job: job, At: now})
	}
	close(goOn)
	frames := b.some(r, 12)
	inOrder(t, frames[1:11], 2, jobs(10))
	isGap(t, frames[11], 12, 26, GapOverflow)
	if frames[11].Seq != 27 {
		t.Errorf("the gap is %s", frames[11].JSON)
	}
}

func TestWriteErrorIsReportedAndLeavesAGap(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Recent: 2})
	b.publish("a")
	if err := b.log.writer.file.Close(); err != nil {
		t.Fatal(err)
	}
	b.publish("b")
	b.publish("c", "d", "e")
	r := b.log.Follow(Filter{}, 0)
	defer r.Close()
	frames := b.some(r, 5)
	inOrder(t, frames[:1], 1, []string{"a"})
	isGap(t, frames[1], 2, 2, GapLost)
	inOrder(t, frames[2:], 3, []string{"c", "d", "e"})
}

func TestRemovedDirectoryIsRecreated(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Recent: 1})
	b.publish("a", "b")
	if err := os.RemoveAll(b.owner.EventsDir()); err != nil {
		t.Fatal(err)
	}
	b.jump.Store(int64(2 * pruneEvery))
	b.publish("c", "d")
	r := b.log.Follow(Filter{}, 0)
	defer r.Close()
	frames := b.some(r, 3)
	isGap(t, frames[0], 1, 2, GapRetention)
	inOrder(t, frames[1:], 3, []string{"c", "d"})
}

func TestUnknownSequenceIsAGap(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	b.publish("a")
	r := b.log.Follow(Filter{}, 99)
	defer r.Close()
	b.publish("b")
	frames := b.some(r, 2)
	isGap(t, frames[0], 2, 99, GapUnknown)
	inOrder(t, frames[1:], 2, []string{"b"})
}

func TestStrayFilesAreIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Recent: 1, Retention: Retention{Bytes: 1}})
	for _, name := range []string{"notes.txt", "1.ndjson", "0000000000000000.ndjson", "zzz.ndjson"} {
		if err := os.WriteFile(filepath.Join(b.owner.EventsDir(), name), []byte("mine\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(b.owner.EventsDir(), segmentName(99)), 0o750); err != nil {
		t.Fatal(err)
	}
	b.publish("a", "b", "c")
	b.reopen()
	b.publish("d")
	entries, err := os.ReadDir(b.owner.EventsDir())
	if err != nil || len(entries) != 6 { // and one segment
		t.Fatalf("%v, %v", entries, err)
	}
}

// Many publish while readers come, go on from where they were, and leave.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const publishers, each = 8, 500
	b := setup(t, Options{Recent: 32, Segment: 20_000})
	var group sync.WaitGroup
	for p := range publishers {
		group.Go(func() {
			for i := range each {
				b.log.Publish(api.Event{Type: Transition, Key: strconv.Itoa(p), Run: i})
			}
		})
	}
	for range 4 {
		group.Go(func() {
			next := make(map[string]int)
			pos, seen := uint64(0), 0
			for seen < publishers*each {
				r := b.log.Follow(Filter{}, pos)
				wake := r.Wake()
				frames, more := r.Take()
				for _, f := range frames {
					if f.Type == Missing || f.Seq != pos+1 || f.Run != next[f.Key] {
						t.Errorf("after %d came %s, want run %d of %s", pos, f.JSON, next[f.Key], f.Key)
						return
					}
					pos, seen = f.Seq, seen+1
					next[f.Key]++
				}
				if !more && len(frames) == 0 {
					<-wake
				}
				r.Close()
			}
		})
	}
	group.Wait()
}

func TestNumbersAreReservedInBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	b.log.writer.end = b.log.writer.next + 3 // nothing is published yet
	b.publish(jobs(10)...)
	r := b.log.Follow(Filter{}, 0)
	defer r.Close()
	inOrder(t, b.some(r, 10), 1, jobs(10))
	b.crash()
	b.publish("last")
	again := b.log.Follow(Filter{}, 10)
	defer again.Close()
	frames := b.some(again, 2)
	isGap(t, frames[0], 11, 200_000, GapCrash)
	if frames[1].Job != "last" {
		t.Fatalf("then came %s", frames[1].JSON)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	id, err := statefs.ParseID("g-j_2026-11-22_09-00-00_p1_r7")
	if err != nil {
		t.Fatal(err)
	}
	e := api.Event{Type: Progress, ID: id, Group: "g", Job: "j", Lane: "l", Key: "k", Tags: []string{"t", "u"}}
	for _, test := range []struct {
		name   string
		filter Filter
		want   bool
	}{
		{"none", Filter{}, true},
		{"job", Filter{Jobs: []string{"j"}}, true},
		{"address", Filter{Jobs: []string{"x", "g/j"}}, true},
		{"job of another group", Filter{Jobs: []string{"h/j"}}, false},
		{"group", Filter{Groups: []string{"g"}}, true},
		{"other group", Filter{Groups: []string{"j"}}, false},
		{"lane", Filter{Lanes: []string{"l"}}, true},
		{"other lane", Filter{Lanes: []string{"x"}}, false},
		{"key", Filter{Keys: []string{"k"}}, true},
		{"other key", Filter{Keys: []string{""}}, false},
		{"one tag of several", Filter{Tags: []string{"x", "u"}}, true},
		{"other tag", Filter{Tags: []string{"x"}}, false},
		{"id", Filter{IDs: []statefs.ID{id}}, true},
		{"other id", Filter{IDs: []statefs.ID{{}}}, false},
		{"type", Filter{Types: []Type{Transition, Progress}}, true},
		{"other type", Filter{Types: []Type{Transition}}, false},
		{"all of them", Filter{Jobs: []string{"j"}, Tags: []string{"t"}, Types: []Type{Progress}}, true},
		{"all but one", Filter{Jobs: []string{"j"}, Tags: []string{"t"}, Types: []Type{Transition}}, false},
	} {
		if got := test.filter.Wants(&e); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if !test.filter.Wants(&api.Event{Type: Missing}) {
			t.Errorf("%s: a gap does not pass", test.name)
		}
	}
}

func TestNilLogDropsEvents(t *testing.T) {
	t.Parallel()
	var l *Log
	l.Publish(api.Event{Type: Swept})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// For any file contents, a reader terminates, numbers grow, and missing events are reported as gaps.
func FuzzSegments(f *testing.F) {
	f.Add([]byte("{\"seq\":1,\"type\":\"sweep\"}\n{\"seq\":2,\"type\":\"sweep\"}\n"),
		[]byte("{\"seq\":9,\"type\":\"gap\",\"gap\":{\"from\":3,\"to\":8}}\n"), uint64(0))
	f.Add([]byte("{\"seq\":5}\n{\"seq\":4}\nx\n\x00\x00\n{\"seq\":7"),
		[]byte("\n\n{\"seq\":18446744073709551615}\n"), uint64(3))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, one, two []byte, want uint64) {
		for i, data := range [][]byte{one, two} {
			if err := os.WriteFile(filepath.Join(dir, segmentName(uint64(1+i*6))), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := newScan(dir, want)
		defer s.close()
		var seen []uint64
		for {
			e, line, ok := s.next()
			if !ok {
				break
			}
			if e.Seq < want || slices.Contains(line, '\n') {
				t.Fatalf("line %q of event %d, from %d on", line, e.Seq, want)
			}
			seen = append(seen, e.Seq)
		}
		if len(seen) > strings.Count(string(one)+string(two), "\n") {
			t.Fatalf("%d events of fewer lines", len(seen))
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	tree, err := statefs.Open(filepath.Join(b.TempDir(), "storage"), statefs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	owner, err := statefs.Own(tree)
	if err != nil {
		b.Fatal(err)
	}
	l, err := Open(owner, Options{Retention: DefaultRetention})
	if err != nil {
		b.Fatal(err)
	}
	e := api.Event{
		Type: Transition, Group: "g", Job: "j", Lane: "default", From: statefs.Queued, To: statefs.Running,
		Cause: statefs.CauseStart, Run: 1,
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Publish(e)
	}
	if err := errorsOf(l.Close, owner.Release, tree.Close); err != nil {
		b.Fatal(err)
	}
}

func errorsOf(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// The last event may be older than one before it: operations are published side by side. What was published before the
// newest of them is not published again.
func TestBeforeIsTheNewestTime(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	at := time.Now()
	for _, ago := range []time.Duration{time.Minute, 0, time.Second} {
		b.log.Publish(api.Event{Type: Swept, At: at.Add(-ago)})
	}
	b.reopen()
	if before := b.log.Before(); !before.Equal(at) {
		t.Errorf("before %s, want %s", before, at)
	}
}
