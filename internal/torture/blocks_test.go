package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/internal/blockrec"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// socket is the mount point of a disk: a block device with a file system, mounted for the storage of a rig.
type socket struct {
	*rig
	fs     blockrec.FileSystem
	folder string // by which the disk becomes a device
	at     string // where it is mounted
	device *blockrec.Attached
}

// insert mounts a disk, or skips the test if that is not possible. The file system recovers by its journal
// here.
func (s *socket) insert(disk *blockrec.Disk) {
	s.t.Helper()
	device, err := blockrec.Attach(s.folder, disk)
	must(s.t, err)
	if err = s.fs.Mount(device, s.at); err == nil {
		s.device = device
		err = bootAgain(s.dir)
	} else {
		err = errors.Join(err, device.Close())
	}
	if errors.Is(err, blockrec.ErrCannotAttach) {
		s.t.Skipf("%s needs its file system, which only the first mount finds missing: %v", s.fs.Name, err)
	}
	must(s.t, err)
}

// remove ends every process of the rig and unmounts the disk.
func (s *socket) remove() {
	if s.device == nil {
		return
	}
	s.endAll()
	var err error
	until(s.t, "nothing uses "+s.at, func() bool { // a process that has ended may still close its files
		err = s.fs.Unmount(s.device, s.at)
		return !errors.Is(err, unix.EBUSY)
	})
	if err := errors.Join(err, s.device.Close()); err != nil {
		s.t.Error(err)
	}
	s.device = nil
}

// TestBlocksReordered records what real file systems write to their disk while daemons acknowledge requests.
// It cuts the power at many points, mounts a possible state of a disk with a volatile cache, starts a daemon
// on it, and compares the storage with the answers until then.
func TestBlocksReordered(t *testing.T) {
	t.Parallel()
	if err := blockrec.CanAttach(); err != nil {
		t.Skipf("the recorder needs root, FUSE and loop devices: %v", err)
	}
	states := map[string]int{
		"ext4": prooftest.Count(3, 8, 100), "xfs": prooftest.Count(0, 0, 30),
		"btrfs": prooftest.Count(0, 0, 50),
	}
	for _, fs := range blockrec.FileSystems() {
		t.Run(fs.Name, func(t *testing.T) {
			t.Parallel()
			if states[fs.Name] == 0 {
				t.Skip("only in make torture: JOBDIR_TORTURE=full")
			}
			image, err := fs.Format(t.TempDir())
			if errors.Is(err, blockrec.ErrCannotAttach) {
				t.Skipf("the tools of %s are missing: %v", fs.Name, err)
			}
			must(t, err)
			at := t.TempDir()
			s := &socket{rig: newRig(t, filepath.Join(at, "storage")), fs: fs, folder: t.TempDir(), at: at}
			t.Cleanup(s.remove)
			disk := blockrec.NewDisk(image)
			s.insert(disk)
			rec := &recording{r: s.rig, at: disk.Len}
			stop := rec.hear(t)
			rec.perform(t, prooftest.Count(1, 1, 2), prooftest.Count(1, 1, 5))
			replay := disk.Replay() // without the writes of an unmount
			s.remove()
			stop()
			if t.Failed() {
				return
			}
			s.cutEverywhere(replay, rec.acks, states[fs.Name])
		})
	}
}

// cutEverywhere checks a number of states of a recording, and counts them.
func (s *socket) cutEverywhere(replay *blockrec.Replay, all []acknowledgement, states int) {
	s.t.Helper()
	must(s.t, os.Remove(s.effects)) // the pipe; it has no reader any more
	must(s.t, os.WriteFile(s.effects, nil, 0o600))
	points := s.pointsOf(replay, all, states)
	operations, answers, pending, dropped := 0, 0, 0, 0
	for i, at := range points {
		replay.To(at)
		keep, lost := s.keeper(i)
		image := replay.Draw(keep)
		pending += replay.Pending()
		dropped += *lost
		expected := expect(all, at)
		operations += len(expected.ops)
		answers += acksUntil(all, at)
		if err := s.recover(image, expected); err != nil {
			s.t.Fatalf("%s, after %d of %d writes and flushes, without %d of the %d blocks that were not flushed: %v\n%s",
				s.fs.Name, at, replay.Len(), *lost, replay.Pending(), err, lastOps(replay))
		}
	}
	figures.add(s.t, "states of the disk recovered from", len(points))
	figures.add(s.t, "writes and flushes recorded", replay.Len())
	figures.add(s.t, "operations looked up in them, and found as acknowledged", operations)
	figures.add(s.t, "answers held against them", answers)
	figures.add(s.t, "unflushed blocks at the cuts", pending)
	figures.add(s.t, "of these lost", dropped)
}

// pointsOf draws the points of the cuts, sorted: half of them right after an answer, where no later sync can
// hide a missing one; the others after flushes, before flushes, where most writes are pending, and anywhere.
func (s *socket) pointsOf(replay *blockrec.Replay, all []acknowledgement, number int) []int {
	var flushes, answered []int
	for i := range replay.Len() {
		if replay.Op(i).Kind == blockrec.Flush {
			flushes = append(flushes, i+1)
		}
	}
	for _, what := range all {
		if what.answered <= replay.Len() {
			answered = append(answered, what.answered)
		}
	}
	var points []int
	for i := range number {
		switch i % 6 {
		default:
			points = append(points, answered[s.random.IntN(len(answered))])
		case 1:
			points = append(points, flushes[s.random.IntN(len(flushes))])
		case 3:
			points = append(points, flushes[s.random.IntN(len(flushes))]-1)
		case 5:
			points = append(points, s.random.IntN(replay.Len()+1))
		}
	}
	slices.Sort(points)
	return points
}

// keeper decides which unflushed blocks a disk has kept: none, any, most, or few of them. It counts the lost
// ones.
func (s *socket) keeper(state int) (keep func() bool, lost *int) {
	random := rand.New(rand.NewPCG(s.random.Uint64(), 4))
	share := []float64{0, 0.5, 0.9, 0.1}[state%4]
	lost = new(int)
	return func() bool {
		if random.Float64() < share {
			return true
		}
		*lost++
		return false
	}, lost
}

// recover mounts a state, starts a daemon on it, and returns contradictions to the answers.
func (s *socket) recover(image *blockrec.Image, expected *expectations) error {
	s.t.Helper()
	s.insert(blockrec.NewDisk(image))
	defer s.remove()
	if err := errors.Join(expected.beforeStart(s.dir), expected.oneMarker(s.dir)); err != nil {
		return fmt.Errorf("before a start: %w", err)
	}
	d, err := s.tryStart()
	if err != nil {
		return err
	}
	defer d.kill()
	err = errors.Join(expected.afterStart(s.dir), expected.goesOn(d.Client, "quick"))
	if err != nil {
		return fmt.Errorf("%w\nthe daemon said: %s", err, d.stderr)
	}
	return nil
}

// oneMarker checks that no acknowledged operation has two markers.
func (e *expectations) oneMarker(dir string) error {
	if len(e.ops) == 0 {
		return nil // the storage may not exist yet
	}
	tree, err := statefs.Open(dir, statefs.Options{Durability: statefs.Process})
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // opened for reading
	var errs []error
	for id := range e.ops {
		if sight, err := tree.ObserveAll(id); err != nil || len(sight.States) > 1 {
			errs = append(errs, fmt.Errorf("%s has the markers %q: %w", id, sight.States, err))
		}
	}
	return errors.Join(errs...)
}

// lastOps describes the operations of the disk before the cut.
func lastOps(replay *blockrec.Replay) string {
	var lines strings.Builder
	for i := max(0, replay.At()-20); i < replay.At(); i++ {
		fmt.Fprintf(&lines, "%5d %s\n", i, replay.Op(i))
	}
	return lines.String()
}
