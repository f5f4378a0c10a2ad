package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// floorTree does the file operations of an operation that does nothing, and nothing else:
//
//	submit  record: temporary file, sync, rename; marker: file without a name, link; sync of both folders (and the record as the marker where nothing is synced)
//	start   log made; marker renamed; sync of both folders (and the record again before, for work that is no handler's first run)
//	end     record again; sync of the folder of records; marker removed
//
// Syncs of files run side by side, as many as the daemon allows; one sync of a folder serves all who asked before it
// began.
type floorTree struct {
	dir    string
	synced bool // durability power
	lean   bool // start without a record, as the first run of a handler does
	slots  chan struct{}
	day    sharedSync
	jobs   sharedSync
}

// The sizes of what is written: the records of a handler without parameters when it is submitted, runs, and has
// ended, and a marker.
const (
	recordQueued  = 700
	recordRunning = 920
	recordEnded   = 1200
	markerSize    = 33
)

func newFloorTree(dir string, synced, lean bool) (*floorTree, error) {
	f := &floorTree{dir: dir, synced: synced, lean: lean, slots: make(chan struct{}, 64)}
	var err error
	for _, name := range []string{"jobs", "day", "tmp"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o750))
	}
	var err2, err3 error
	f.day.folder, err2 = os.Open(filepath.Join(dir, "day"))
	f.jobs.folder, err3 = os.Open(filepath.Join(dir, "jobs"))
	return f, errors.Join(err, err2, err3)
}

func (f *floorTree) close() error { return errors.Join(f.day.folder.Close(), f.jobs.folder.Close()) }

func (f *floorTree) submit(id string) error {
	record := func() error { return f.create(f.path(id), recordQueued) }
	if f.synced { // with a sync a file without a name is none the faster
		record = func() error { return f.record(id, recordQueued) }
	}
	if err := errors.Join(record(), f.create(f.marker(id, "queued"), markerSize)); err != nil {
		return err
	}
	return f.both()
}

func (f *floorTree) start(id string) error {
	log, err := os.OpenFile(filepath.Join(f.dir, "day", id+".log"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	if !f.lean {
		if err := f.record(id, recordRunning); err != nil {
			return err
		}
	}
	if err := os.Rename(f.marker(id, "queued"), f.marker(id, "running")); err != nil {
		return err
	}
	return f.both()
}

func (f *floorTree) end(id string) error {
	if err := f.record(id, recordEnded); err != nil {
		return err
	}
	if f.synced {
		if err := f.day.sync(); err != nil {
			return err
		}
	}
	return os.Remove(f.marker(id, "running"))
}

func (f *floorTree) marker(id, state string) string {
	return filepath.Join(f.dir, "jobs", id+"."+state)
}

func (f *floorTree) path(id string) string { return filepath.Join(f.dir, "day", id+".json") }

func (f *floorTree) record(id string, size int) error {
	if f.synced {
		f.slots <- struct{}{}
		defer func() { <-f.slots }()
	}
	temp, err := f.temp(size, f.synced)
	if err != nil {
		return err
	}
	return os.Rename(temp, f.path(id))
}

// create makes a file that has no name until it is whole.
func (f *floorTree) create(path string, size int) error {
	t, err := os.OpenFile(filepath.Join(f.dir, "tmp"), os.O_WRONLY|unix.O_TMPFILE, 0o640)
	if err != nil {
		return err
	}
	err = fill(t, size, false)
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(t.Fd())), unix.AT_FDCWD, path,
			unix.AT_SYMLINK_FOLLOW)
	}
	return errors.Join(err, t.Close())
}

func (f *floorTree) temp(size int, synced bool) (string, error) {
	name := filepath.Join(f.dir, "tmp", "state-"+strconv.FormatUint(rand.Uint64(), 36))
	t, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return "", err
	}
	return t.Name(), errors.Join(fill(t, size, synced), t.Close())
}

func fill(f *os.File, size int, synced bool) error {
	if _, err := f.WriteString(strings.Repeat("x", size)); err != nil || !synced {
		return err
	}
	return f.Sync()
}

// both syncs both folders, side by side.
func (f *floorTree) both() error {
	if !f.synced {
		return nil
	}
	day := make(chan error, 1)
	go func() { day <- f.day.sync() }()
	return errors.Join(f.jobs.sync(), <-day)
}

// sharedSync syncs a folder, once for all who wait.
type sharedSync struct {
	folder *os.File
	turn   sync.Mutex
	mu     sync.Mutex // guards next
	next   *sharedTurn
}

type sharedTurn struct {
	once sync.Once
	err  error
}

func (s *sharedSync) sync() error {
	s.mu.Lock()
	if s.next == nil {
		s.next = new(sharedTurn)
	}
	turn := s.next
	s.mu.Unlock()
	turn.once.Do(func() {
		s.turn.Lock()
		defer s.turn.Unlock()
		s.mu.Lock()
		s.next = nil // who comes from here on may have written after this sync began
		s.mu.Unlock()
		turn.err = s.folder.Sync()
	})
	return turn.err
}
