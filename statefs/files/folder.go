package files

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Folder is an open directory with shared syncs: one sync serves every call made before it
// began. No timer is involved; while one sync runs, the next batch gathers.
type Folder struct {
	f    *os.File
	skip bool         // no sync is wanted
	call func() error // f.Sync

	token chan struct{} // holds one token, taken by the running sync; guards failed
	// the first failure: the kernel reports it once, and a later success does not restore what was
	// lost
	failed error
	mu     sync.Mutex // guards next
	next   *syncBatch
}

type syncBatch struct {
	done chan struct{}
	err  error
}

// OpenFolder opens a folder. Its Sync does nothing unless durable is set. Anything else in the place of the folder is
// an error; a fifo does not block.
func OpenFolder(path string, durable bool) (*Folder, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0) // does not block on a fifo
	if err != nil {
		return nil, err
	}
	return NewFolder(f, durable), nil
}

// NewFolder is OpenFolder for an open folder, which Close closes.
func NewFolder(f *os.File, durable bool) *Folder {
	d := &Folder{f: f, skip: !durable, call: f.Sync, token: make(chan struct{}, 1)}
	d.token <- struct{}{}
	return d
}

// Sync returns after a directory sync that began after the call. The error is a *SyncError; after
// the first one, every later call returns it.
func (d *Folder) Sync() error {
	if d.skip {
		return nil
	}
	d.mu.Lock()
	batch, leads := d.next, false
	if batch == nil {
		batch, leads = &syncBatch{done: make(chan struct{})}, true
		d.next = batch
	}
	d.mu.Unlock()
	if leads {
		<-d.token
		d.mu.Lock()
		d.next = nil // later callers may have written after this sync began
		d.mu.Unlock()
		if d.failed == nil {
			if err := d.call(); err != nil {
				d.failed = &SyncError{d.f.Name(), err}
			}
		}
		batch.err = d.failed
		close(batch.done)
		d.token <- struct{}{}
	}
	<-batch.done
	return batch.err
}

// SyncBy sets the call that syncs the folder, for tests that count syncs or let them fail.
func (d *Folder) SyncBy(call func() error) { d.call = call }

// Close closes the folder.
func (d *Folder) Close() error { return d.f.Close() }

// Is reports whether the folder still has a name; otherwise it was removed or replaced. The error is of the open
// folder.
func (d *Folder) Is(path string) (bool, error) {
	held, err := d.f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(held, named), nil
}

// SyncFolder syncs a folder that is rarely synced.
func SyncFolder(path string) error {
	d, err := OpenFolder(path, true)
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close() // opened for reading
	return err
}

// OpenFolderIn opens a folder below root for reading. Anything else in its place counts as missing; a fifo does
// not block.
func OpenFolderIn(root *os.Root, name string) (*os.File, error) {
	return asMissing(root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0))
}

func asMissing(f *os.File, err error) (*os.File, error) {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, unix.ENOTDIR) {
		err = &fs.PathError{Op: failed.Op, Path: failed.Path, Err: fs.ErrNotExist}
	}
	return f, err
}

// ReadFolderIn lists a folder like fs.ReadDir, and opens it like OpenFolderIn.
func ReadFolderIn(root *os.Root, name string) ([]fs.DirEntry, error) {
	return readFolderFrom(OpenFolderIn(root, name))
}

// ReadFolder lists a folder like os.ReadDir. Anything else in its place counts as missing; a fifo
// does not block.
func ReadFolder(name string) ([]fs.DirEntry, error) {
	return readFolderFrom(asMissing(os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)))
}

func readFolderFrom(f *os.File, err error) ([]fs.DirEntry, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}
