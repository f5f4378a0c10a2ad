package torture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs/journal"
	"github.com/jobdir/jobdir/statefs/notify"
)

// openJournal continues a journal whose segments are filled by few entries. end stops it.
func openJournal(t *testing.T, dir string, durable bool) (j *journal.Journal, end func()) {
	t.Helper()
	r, _, err := readJournal(t, dir)
	must(t, err)
	j, err = journal.Open(r, 0, journal.Options{Durable: durable, SegmentSize: 16 << 10, MaxSegments: 4})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- j.Run(ctx) }()
	return j, func() { stop(); must(t, errors.Join(<-done, r.Close())) }
}

// readJournal returns the entries of a journal by number.
func readJournal(t *testing.T, dir string) (*journal.Reader, map[uint64]string, error) {
	t.Helper()
	r, err := journal.NewReader(dir)
	must(t, err)
	got := map[uint64]string{}
	for f, err := range r.Frames() {
		if err != nil {
			return r, got, err
		}
		for i, entry := range f.Entries {
			got[f.First+uint64(i)] = string(entry)
		}
	}
	return r, got, nil
}

// TestPowerCutsOfAJournal: after a power cut at any point, by every model of what a disk keeps, all committed entries
// are read, but those up to a checkpoint. The next daemon goes on there.
func TestPowerCutsOfAJournal(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	at := t.TempDir()
	disk := faultfs.NewDisk(faultfs.Empty())
	mounted, err := faultfs.Mount(at, disk)
	must(t, err)
	type known struct {
		operations        int // of the disk
		entry, checkpoint uint64
	}
	var committed []known
	var entry, checkpoint uint64
	for run := range prooftest.Count(3, 6, 20) {
		j, end := openJournal(t, at, true)
		for n := range 12 {
			entry = j.Next() + 1
			must(t, j.Append([]byte("first"), bytes.Repeat([]byte{'a' + byte(run)}, 1+n%5*700)).Wait(t.Context()))
			committed = append(committed, known{disk.Len(), entry, checkpoint})
			j.Viewed(entry - 1)
			if n%4 == 3 {
				checkpoint = entry - 3
				committed = append(committed, known{disk.Len(), entry, checkpoint})
				j.Checkpoint(checkpoint)
			}
		}
		// More than the journal holds: commits wait for a segment while checkpoints are recorded.
		var commits []*journal.Commit
		for range 60 {
			commits = append(commits, j.Append(bytes.Repeat([]byte{'A' + byte(run)}, 1000)))
		}
		for _, commit := range commits {
			for !notify.IsClosed(commit.Done()) {
				if checkpoint+4 <= entry {
					checkpoint += 4
					committed = append(committed, known{disk.Len(), entry, checkpoint})
					j.Checkpoint(checkpoint)
				}
				select {
				case <-commit.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
			must(t, commit.Err())
			entry++
			committed = append(committed, known{disk.Len(), entry, checkpoint})
		}
		end()
	}
	must(t, mounted.Close())
	replay, states, top := disk.Replay(), 0, filepath.Join(t.TempDir(), "disk")
	var last known
	for replay.Next() {
		for len(committed) > 0 && committed[0].operations <= replay.At() {
			last, committed = committed[0], committed[1:]
		}
		for image := range replay.Images(faultfs.Everything, faultfs.Strict, faultfs.Ordered, faultfs.Subset) {
			must(t, errors.Join(os.Mkdir(top, 0o750), image.Materialise(top)))
			r, got, err := readJournal(t, top)
			must(t, err)
			for n := last.checkpoint + 1; n <= last.entry; n++ {
				if _, is := got[n]; !is {
					t.Fatalf("after %d operations, entry %d of %d is missing: %+v", replay.At(), n, last.entry, r.End())
				}
			}
			if r.End().Checkpoint > last.entry || r.End().Entry > entry {
				t.Fatalf("after %d operations: %+v", replay.At(), r.End())
			}
			if states++; states%7 == 0 {
				j, end := openJournal(t, top, false)
				must(t, j.Append([]byte("further")).Wait(t.Context()))
				end()
				again, all, err := readJournal(t, top)
				must(t, errors.Join(err, again.Close()))
				if all[r.End().Entry+1] != "further" {
					t.Fatalf("after %d operations the journal does not go on", replay.At())
				}
			}
			must(t, errors.Join(r.Close(), os.RemoveAll(top)))
		}
	}
	figures.add(t, "states of a disk after power cuts from which a journal was read", states)
	figures.add(t, "operations of the disk, each followed by a cut", replay.At())
}

// TestDurableJournalAfterAnotherOne cuts the power of a journal that syncs. The journal before did not, and left lines
// and a spare segment unsynced. All lines are read nevertheless.
func TestDurableJournalAfterAnotherOne(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	at := t.TempDir()
	disk := faultfs.NewDisk(faultfs.Empty())
	mounted, err := faultfs.Mount(at, disk)
	must(t, err)
	const before = 20
	j, end := openJournal(t, at, false)
	for range before {
		must(t, j.Append(bytes.Repeat([]byte("x"), 1000)).Wait(t.Context()))
	}
	must(t, j.Room(t.Context(), 8<<10)) // so there is a spare segment
	end()
	j, end = openJournal(t, at, true)
	must(t, j.Append([]byte("last")).Wait(t.Context()))
	operations := disk.Len()
	end()
	must(t, mounted.Close())
	replay, top := disk.Replay(), filepath.Join(t.TempDir(), "disk")
	for replay.At() < operations {
		if !replay.Next() {
			t.Fatalf("the disk has %d operations, want %d", replay.At(), operations)
		}
	}
	for image := range replay.Images(faultfs.Everything, faultfs.Strict, faultfs.Ordered, faultfs.Subset) {
		must(t, errors.Join(os.Mkdir(top, 0o750), image.Materialise(top)))
		r, got, err := readJournal(t, top)
		must(t, errors.Join(err, r.Close(), os.RemoveAll(top)))
		if len(got) != before+1 || got[before+1] != "last" {
			t.Fatalf("%s: %d entries are read: %+v", image.Model, len(got), r.End())
		}
	}
}
