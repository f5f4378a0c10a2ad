package torture

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jobdir/jobdir/internal/blockrec"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs/journal"
)

// promise is what a journal has promised at a position of the disk: all entries up to the last are read, but those up
// to the checkpoint.
type promise struct {
	at               int
	last, checkpoint uint64
}

// promises are the promises of a journal while goroutines write it.
type promises struct {
	at  func() int // position of the disk
	mu  sync.Mutex // guards the fields below, and is held from Next to Append
	now promise
	all []promise // in order
}

func (p *promises) noteLocked() {
	p.now.at = p.at()
	p.all = append(p.all, p.now)
}

// until returns what was promised at a position.
func (p *promises) until(at int) promise {
	i, _ := slices.BinarySearchFunc(p.all, at+1, func(a promise, at int) int { return a.at - at })
	return append([]promise{{}}, p.all[:i]...)[i]
}

// journalEntry is the content of an entry: its number, and more for some.
func journalEntry(number uint64) []byte {
	return append(strconv.AppendUint(nil, number, 10), bytes.Repeat([]byte("x"), int(number%7)*150)...)
}

// write appends a number of times, one to three entries each, and waits each time.
func (p *promises) write(t *testing.T, j *journal.Journal, times int) {
	t.Helper()
	for n := range times {
		p.mu.Lock()
		last := j.Next() - 1
		var entries [][]byte
		for range 1 + n%3 {
			last++
			entries = append(entries, journalEntry(last))
		}
		commit := j.Append(entries...)
		p.mu.Unlock()
		if err := commit.Wait(t.Context()); err != nil {
			t.Error(err)
			return
		}
		p.mu.Lock()
		p.now.last = max(p.now.last, last)
		p.noteLocked()
		if last = p.now.last; n%4 == 3 && last > 12 {
			p.now.checkpoint = last - 12
			p.noteLocked()
			j.Checkpoint(last - 12)
		}
		p.mu.Unlock()
		j.Viewed(last)
	}
}

// record runs a journal in a folder. It is idle after each of two bursts, so that it records what was viewed.
func (p *promises) record(t *testing.T, dir string) {
	t.Helper()
	j, end := openJournal(t, dir, true)
	defer end() // also after a failure: the file system could not be unmounted
	for range 2 {
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() { p.write(t, j, prooftest.Count(12, 12, 40)) })
		}
		writers.Wait()
		until(t, "what was viewed is recorded", func() bool {
			viewed, err := recordedView(dir)
			if errors.Is(err, fs.ErrNotExist) { // the journal has released a segment in between
				return false
			}
			must(t, err)
			return viewed == p.now.last || t.Failed()
		})
	}
}

// recordedView reads what the last frame of a journal says was viewed.
func recordedView(dir string) (uint64, error) {
	r, err := journal.NewReader(dir)
	if err != nil {
		return 0, err
	}
	for _, err = range r.Frames() {
		if err != nil {
			break
		}
	}
	return r.End().Viewed, errors.Join(err, r.Close())
}

// check reads the journal of a folder after a power cut.
func (p promise) check(t *testing.T, dir string) error {
	t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && p.last == 0 {
		return nil // the folder was not made yet
	}
	r, got, err := readJournal(t, dir)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	for n := p.checkpoint + 1; n <= p.last; n++ {
		if _, is := got[n]; !is {
			return fmt.Errorf("entry %d of %d is missing: %+v", n, p.last, r.End())
		}
	}
	for n, entry := range got {
		if entry != string(journalEntry(n)) {
			return fmt.Errorf("entry %d is %q", n, entry)
		}
	}
	if r.End().Checkpoint > p.checkpoint {
		return fmt.Errorf("the checkpoint %d was never asked for: %+v", p.checkpoint, r.End())
	}
	return nil
}

// TestJournalOnReorderedBlocks records what real file systems write to their disk while goroutines append to a journal
// and wait. It cuts the power at many points, mounts a possible state of a disk with a volatile cache, and reads what
// was acknowledged until then. Some of the journals go on there.
func TestJournalOnReorderedBlocks(t *testing.T) {
	t.Parallel()
	if err := blockrec.CanAttach(); err != nil {
		t.Skipf("the recorder needs root, FUSE and loop devices: %v", err)
	}
	states := map[string]int{
		"ext4": prooftest.Count(6, 40, 600), "xfs": prooftest.Count(0, 12, 200), "btrfs": prooftest.Count(0, 12, 200),
	}
	for _, fs := range blockrec.FileSystems() {
		t.Run(fs.Name, func(t *testing.T) {
			t.Parallel()
			if states[fs.Name] == 0 {
				t.Skip("only in make prove: JOBDIR_TORTURE=prove")
			}
			image, err := fs.Format(t.TempDir())
			if errors.Is(err, blockrec.ErrCannotAttach) {
				t.Skipf("the tools of %s are missing: %v", fs.Name, err)
			}
			must(t, err)
			at := t.TempDir()
			dir := filepath.Join(at, "journal")
			s := &socket{rig: newRig(t, dir), fs: fs, folder: t.TempDir(), at: at}
			t.Cleanup(s.remove)
			disk := blockrec.NewDisk(image)
			s.insert(disk)
			must(t, os.Mkdir(dir, 0o750))
			top, err := os.Open(at)
			must(t, err)
			must(t, errors.Join(top.Sync(), top.Close()))
			p := &promises{at: disk.Len}
			for range prooftest.Count(2, 3, 4) {
				p.record(t, dir)
			}
			replay := disk.Replay() // without the writes of an unmount
			s.remove()
			if t.Failed() {
				return
			}
			s.cutJournal(replay, p, states[fs.Name])
		})
	}
}

// cutJournal checks a number of states of a recording, and counts them.
func (s *socket) cutJournal(replay *blockrec.Replay, p *promises, states int) {
	s.t.Helper()
	var acks []acknowledgement
	for _, promised := range p.all {
		acks = append(acks, acknowledgement{answered: promised.at})
	}
	pending, dropped, entries := 0, 0, 0
	for i, at := range s.pointsOf(replay, acks, states) {
		replay.To(at)
		keep, lost := s.keeper(i)
		image := replay.Draw(keep)
		pending += replay.Pending()
		dropped += *lost
		promised := p.until(at)
		entries += int(promised.last - promised.checkpoint)
		s.insert(blockrec.NewDisk(image))
		err := promised.check(s.t, s.dir)
		if err == nil && i%3 == 0 && promised.last > 0 {
			err = goesOn(s.t, s.dir)
		}
		s.remove()
		if err != nil {
			s.t.Fatalf("%s, after %d of %d writes and flushes, without %d of the %d blocks that were not flushed: %v\n%s",
				s.fs.Name, at, replay.Len(), *lost, replay.Pending(), err, lastOps(replay))
		}
	}
	figures.add(s.t, "states of the disk from which a journal was read", states)
	figures.add(s.t, "writes and flushes recorded", replay.Len())
	figures.add(s.t, "entries looked up in them", entries)
	figures.add(s.t, "unflushed blocks at the cuts", pending)
	figures.add(s.t, "of these lost", dropped)
}

// goesOn appends to the journal of a folder, and reads that.
func goesOn(t *testing.T, dir string) error {
	t.Helper()
	j, end := openJournal(t, dir, true)
	next := j.Next()
	err := j.Append([]byte("further")).Wait(t.Context())
	end()
	r, got, err2 := readJournal(t, dir)
	if err := errors.Join(err, err2, r.Close()); err != nil {
		return err
	}
	if got[next] != "further" {
		return fmt.Errorf("the journal does not go on at %d: %+v", next, r.End())
	}
	return nil
}
