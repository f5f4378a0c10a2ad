package statefs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/commit"
	"github.com/jobdir/jobdir/statefs/journal"
)

// history is the lines of one operation: its first state, and a transition for each further line.
type history struct {
	id    ID
	lines []change
}

// histories calls do with every history of at most some transitions.
func histories(t *testing.T, id ID, transitionsAtMost int, do func(h history)) {
	t.Helper()
	at := func(n int) time.Time { return testTime.Add(time.Duration(2*n) * time.Second) }
	var extend func(h history)
	extend = func(h history) {
		do(h)
		last := h.lines[len(h.lines)-1]
		if len(h.lines) > transitionsAtMost || last.marker() == "" {
			return
		}
		for _, row := range transitions {
			if row.From != last.Status {
				continue
			}
			next := change{
				ID: id, Status: row.To, UpdatedAt: at(len(h.lines)), journalLine: journalLine{number: last.number + 1},
				Transitions: append(slices.Clip(last.Transitions), PastTransition{From: row.From, To: row.To, Cause: row.Cause}),
			}
			extend(history{id, append(slices.Clip(h.lines), next)})
		}
	}
	for _, first := range [][]PastTransition{
		{{To: Queued, Cause: CauseSubmit}},
		{{To: Scheduled, Cause: CauseSubmit}},
		{{To: Queued, Cause: CauseSubmit}, {From: Queued, To: Running, Cause: CauseStart}},
	} {
		extend(history{id, []change{{
			ID: id, Status: first[len(first)-1].To, UpdatedAt: at(0), journalLine: journalLine{number: 1}, Transitions: first,
		}}})
	}
}

// TestJudgeOfEveryCrash goes through every history of four lines: each prefix that is durable, each prefix that is
// known to be in the folder, each moment that the folder may show, and whatever a person does with the marker then.
func TestJudgeOfEveryCrash(t *testing.T) {
	t.Parallel()
	id, err := MakeID("g-j", testTime, 1, 1)
	check(t, err)
	cases := 0
	histories(t, id, 3, func(h history) {
		for viewed := 0; viewed <= len(h.lines); viewed++ {
			known := make(map[ID]*replayed)
			for _, e := range h.lines {
				note(known, e, uint64(viewed))
			}
			r := known[id]
			want := r.last.marker()
			for shown := viewed; shown <= len(h.lines); shown++ {
				var folder []commit.Marker
				if shown > 0 && h.lines[shown-1].marker() != "" {
					// A marker is moved after its line and before the next one.
					folder = []commit.Marker{{
						State: string(h.lines[shown-1].marker()), Changed: h.lines[shown-1].UpdatedAt.Add(time.Second),
					}}
				}
				cases++
				got := r.judge(folder, false)
				if result(got, folder, want) != want && want != "" {
					t.Fatalf("%d lines, %d viewed, the folder is that of line %d: %s makes %q, want %q", len(h.lines), viewed, shown,
						got, result(got, folder, want), want)
				}
				if want == "" && got != commit.Leave {
					t.Fatalf("it has ended, and the answer is %s", got)
				}
				// A person acts before the next start.
				if len(folder) == 0 {
					continue
				}
				for state := range allLiveStates() {
					cases++
					moved := []commit.Marker{{State: string(state), Changed: r.last.UpdatedAt.Add(time.Hour)}}
					if got := r.judge(moved, false); got != commit.Leave {
						t.Fatalf("%d lines, %d viewed: a person moves the marker of line %d to %s, and the answer is %s",
							len(h.lines), viewed, shown, state, got)
					}
				}
				if viewed == len(h.lines) {
					if got := r.judge(nil, false); got != commit.Leave {
						t.Fatalf("a person removes the marker, and the answer is %s", got)
					}
				}
			}
		}
	})
	if cases < 40_000 {
		t.Errorf("%d cases are too few", cases)
	}
	t.Logf("%d cases", cases)
}

// allLiveStates returns the states that a marker can have.
func allLiveStates() map[State]bool {
	states := make(map[State]bool)
	for _, row := range transitions {
		states[row.From] = true
	}
	return states
}

// result is the marker that an answer leads to.
func result(answer commit.Answer, folder []commit.Marker, state State) State {
	switch answer {
	case commit.Make, commit.Rename:
		return state
	case commit.Leave:
	}
	if len(folder) == 0 {
		return ""
	}
	return State(folder[0].State)
}

// TestUnsureOperations: behind damage, the last change of each operation that can be read counts.
func TestUnsureOperations(t *testing.T) {
	t.Parallel()
	var ids []ID
	for n := range uint64(3) {
		id, err := MakeID("g-j", testTime, 1, n+1)
		check(t, err)
		ids = append(ids, id)
	}
	var lines []journalLine
	for i, text := range []string{
		`{"id":"` + ids[0].String() + `","status":"queued"}`,
		`{"id":"` + ids[1].String() + `","status":"queued","next":"running"}`,
		`{"deleted":"` + ids[2].String() + `"}`,
		`{"opened":"2026-01-01T00:00:00Z"}`,
		`half a line`,
		`{"id":"` + ids[0].String() + `","status":"completed"}`,
	} {
		lines = append(lines, journalLine{uint64(10 + i), []byte(text)})
	}
	want := []UnsureOperation{
		{ID: ids[1], LSN: 11, Status: Running}, {ID: ids[2], LSN: 12}, {ID: ids[0], LSN: 15, Status: Completed},
	}
	if got := unsure(lines); !slices.Equal(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

// useJournal owns a storage and commits by the journal until end is called.
func useJournal(t *testing.T, dir string) (owner *Owner, end func()) {
	t.Helper()
	options := Options{Durability: Process, Commit: CommitOptions{Method: CommitJournal, SegmentSize: minSegment}}
	tree, err := Open(dir, options)
	check(t, err)
	owner, err = Own(tree)
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- owner.Journal.Use(ctx, begun) }()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatal(err)
	}
	return owner, func() {
		t.Helper()
		stop()
		check(t, <-ended)
		check(t, owner.Release())
		check(t, tree.Close())
	}
}

// copyStorage copies a storage that is in use. It begins again if a file was renamed during the copy.
func copyStorage(t *testing.T, to, from string) {
	t.Helper()
	err := os.CopyFS(to, os.DirFS(from))
	for errors.Is(err, fs.ErrNotExist) {
		check(t, os.RemoveAll(to))
		err = os.CopyFS(to, os.DirFS(from))
	}
	check(t, err)
}

// TestCopyKeepsWhatEarlierUsesOfTheJournalLack: lines of an earlier use of the journal say nothing about a storage that
// was used without it since, also not in a copy.
func TestCopyKeepsWhatEarlierUsesOfTheJournalLack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "storage")
	killed, copied := filepath.Join(t.TempDir(), "killed"), filepath.Join(t.TempDir(), "copied")
	// copyInUse copies a storage in the middle of its use, as a crash leaves it.
	copyInUse := func(from, to string, before func(owner *Owner)) {
		owner, end := useJournal(t, from)
		before(owner)
		copyStorage(t, to, from)
		end()
	}
	ownFiles := func(dir string, do func(owner *Owner)) {
		tree, err := Open(dir, Options{Durability: Process})
		check(t, err)
		owner, err := Own(tree)
		check(t, err)
		do(owner)
		check(t, owner.Release())
		check(t, tree.Close())
	}
	var id ID
	copyInUse(dir, killed, func(owner *Owner) {
		rec, err := owner.Submit(t.Context(), Submission{Group: "g", Job: "j"})
		check(t, err)
		id = rec.ID
	})
	ownFiles(killed, func(owner *Owner) { check(t, owner.Move(id, Queued, Paused)) })
	copyInUse(killed, copied, func(*Owner) {})
	ownFiles(copied, func(owner *Owner) {
		if !owner.HasMarker(id, Paused) {
			t.Error("the marker is not paused any more")
		}
	})
}

// A journal without its oldest segment is not taken for whole while the files may lack what was in it.
func TestLostFirstSegment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, checkpoint, opened uint64
		lost                      bool
	}{
		{first: 1, opened: 1},
		{first: 1, checkpoint: 7, opened: 1},
		{first: 5, checkpoint: 4, opened: 1},
		{first: 6, checkpoint: 4, opened: 1, lost: true},
		{first: 5, checkpoint: 4, opened: 9},
		{first: 9, checkpoint: 4, opened: 9},
		{first: 10, checkpoint: 4, opened: 9, lost: true},
	} {
		err := lostPart("journal", storageInfo{LSN: c.opened}, c.first, journal.End{Entry: 20, Checkpoint: c.checkpoint})
		if lost := err != nil; lost != c.lost {
			t.Errorf("%+v: %v", c, err)
		}
	}

	var killed string
	for needed := false; !needed; { // a slow machine makes a checkpoint before the copy
		dir := filepath.Join(t.TempDir(), "storage")
		killed = filepath.Join(t.TempDir(), "killed")
		owner, end := useJournal(t, dir)
		var list []*Record
		for range 300 { // one frame, which is larger than the rest of the first segment
			rec, err := owner.Draft(Submission{Group: "g", Job: "j"})
			check(t, err)
			list = append(list, rec)
		}
		check(t, owner.Publish(list...))
		copyStorage(t, killed, dir)
		end()
		found, err := readJournal(filepath.Join(killed, journalDir), func(journalLine) {})
		check(t, err)
		needed = found.End().Checkpoint == 0
		check(t, found.Close())
	}
	check(t, os.Remove(filepath.Join(killed, journalDir, "000000000001.journal")))
	for range 2 { // a start that is refused changes nothing
		tree, err := Open(killed, Options{Durability: Process})
		check(t, err)
		_, err = Own(tree)
		if _, lost := errors.AsType[*JournalLostError](err); !lost || !strings.Contains(err.Error(), " begins with change ") {
			t.Fatalf("the start says %v", err)
		}
		check(t, tree.Close())
	}
}

// A marker that has an unknown name after a crash gets its name back, and is not made a second time.
func TestReplayPutsAMisnamedMarkerBack(t *testing.T) {
	t.Parallel()
	dir, killed := filepath.Join(t.TempDir(), "storage"), filepath.Join(t.TempDir(), "killed")
	owner, end := useJournal(t, dir)
	rec := submit(t, owner.Tree)
	copyStorage(t, killed, dir)
	end()
	misnamed := filepath.Join(killed, jobsDir, rec.ID.text+".quewed")
	check(t, os.Rename(filepath.Join(killed, jobsDir, MarkerName(rec.ID, Queued)), misnamed))
	tree, err := Open(killed, Options{Durability: Process})
	check(t, err)
	o, err := Own(tree)
	check(t, err)
	if _, err := os.Lstat(misnamed); !errors.Is(err, fs.ErrNotExist) || !o.HasMarker(rec.ID, Queued) {
		t.Errorf("the marker is not put back: %v", err)
	}
	check(t, errors.Join(o.Release(), tree.Close()))
}

// A journal whose lines a start has brought to the files does not count again when storage.json is lost, unless it is
// in use: an operation that was deleted since would come back.
func TestReplayedJournalDoesNotCountAgain(t *testing.T) {
	t.Parallel()
	dir, killed := filepath.Join(t.TempDir(), "storage"), filepath.Join(t.TempDir(), "killed")
	owner, end := useJournal(t, dir)
	rec := submit(t, owner.Tree)
	copyStorage(t, killed, dir)
	end()
	onFiles := func(do func(owner *Owner)) {
		tree, err := Open(killed, Options{Durability: Process, Commit: CommitOptions{Method: CommitFiles}})
		check(t, err)
		o, err := Own(tree)
		check(t, err)
		do(o)
		check(t, o.Release())
		check(t, tree.Close())
	}
	onFiles(func(o *Owner) {
		there, err := o.ReadRecord(rec.ID)
		check(t, err)
		check(t, there.Apply(Queued, CauseCancel, o.Now()))
		check(t, o.WriteEnd(there))
		check(t, o.RemoveMarker(rec.ID, Queued))
		check(t, o.Delete(rec.ID.Day(), []ID{rec.ID}))
	})
	check(t, os.Remove(filepath.Join(killed, "storage.json")))
	onFiles(func(o *Owner) {
		if o.HasMarker(rec.ID, Queued) {
			t.Error("the deleted operation is queued again")
		}
	})
}

// A checkpoint passes over the changes of an operation whose marker a person removed, once it has ended.
func TestRemovedMarkersHoldUpNoCheckpoint(t *testing.T) {
	t.Parallel()
	owner, end := useJournal(t, t.TempDir())
	rec := submit(t, owner.Tree)
	check(t, owner.WriteRecord(rec)) // its marker is to be moved
	check(t, os.Remove(filepath.Join(owner.JobsDir(), MarkerName(rec.ID, Queued))))
	if err := owner.Move(rec.ID, Queued, Paused); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the move: %v", err)
	}
	check(t, rec.Apply(Queued, CauseCancel, owner.Now()))
	check(t, owner.WriteEnd(rec))
	check(t, owner.RemoveMarker(rec.ID, ""))
	end() // which fails if something is behind
}
