package statefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Durability says what an acknowledgement promises.
type Durability string

const (
	// Power survives a power cut: files and directories are synced before an answer is given. It is the default.
	Power Durability = "power"
	// Process survives the death of the daemon only: a power cut may empty or lose what was written.
	Process Durability = "process"
)

// maxSyncs bounds the file syncs that run at once: each one holds a thread of the operating system, and more of them only wait
// longer for the same disk.
const maxSyncs = 64

// files is the one place that puts files under their names. Content comes before the name, so no reader and no crash sees half
// a file; directories are synced by syncFolder.
type files struct {
	dir        string // absolute path of the storage directory
	tmp        string // absolute path of tmp/, on the same file system and never watched
	durability Durability
	slots      chan struct{}
	named      atomic.Bool // the file system has no files without a name
	mode       atomic.Bool // new files have the right mode by themselves
}

// SyncError says that the disk did not take what was written. After a failed sync nobody knows what is on it (the kernel marks
// the pages clean), so the daemon ends and recovers from what can be read back.
type SyncError struct {
	Path string
	Err  error
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("sync %s: %v; the disk may be failing or full: check it, then start the daemon again", e.Path, e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// replace puts data under name (relative to the storage), replacing what was there, and has it synced first when the
// durability asks for it. always forces the sync.
func (w *files) replace(name string, data []byte, always bool) error {
	if w.durability != Power && !always {
		return w.replaceUnsynced(name, data)
	}
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	return w.put(name, data, true)
}

// replaceUnsynced is replace without any sync: for process durability, and for files whose loss costs nothing.
func (w *files) replaceUnsynced(name string, data []byte) error { return w.put(name, data, false) }

// rewrite is replace for a name that must be there: the error wraps fs.ErrNotExist when it is not, so what a person removed stays removed.
func (w *files) rewrite(name string, data []byte) error {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	if _, err := os.Lstat(filepath.Join(w.dir, name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err) // persist takes it for its own file that is gone
	}
	return w.putWith(name, data, w.durability == Power, func(temp, target string) error {
		err := swap(temp, target)
		if err == nil {
			_ = os.Remove(temp) // what was there before, if anything
		}
		return err
	})
}

func (w *files) put(name string, data []byte, synced bool) error {
	return w.putWith(name, data, synced, rename)
}

func (w *files) putWith(name string, data []byte, synced bool, move func(from, to string) error) error {
	target := filepath.Join(w.dir, name)
	err := w.persist(func() error {
		temp, err := w.temp(data, synced)
		if err != nil {
			return err
		}
		if err := move(temp, target); err != nil {
			_ = os.Remove(temp) // tmp/ is emptied at start anyway
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, asSyncError(target, err))
	}
	return nil
}

// asSyncError tells a failed sync from the other failures of a write: one ends the daemon, a full disk refuses the submit.
func asSyncError(target string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Op == "sync" {
		return &SyncError{target, failed.Err}
	}
	return err
}

// persist runs a write again when its temporary file vanished under it: a daemon that starts empties tmp/, also of what another
// process is writing at that moment, and somebody may have removed tmp/ itself.
func (w *files) persist(write func() error) error {
	err := write()
	for range 2 {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if mkErr := os.Mkdir(w.tmp, folderMode); mkErr != nil && !errors.Is(mkErr, fs.ErrExist) {
			break
		}
		err = write()
	}
	return w.unnamed(err)
}

// unnamed takes the random name of a temporary file out of an error: it tells nobody anything, and makes the same error another one
// each time, which would be said each time.
func (w *files) unnamed(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && filepath.Dir(failed.Path) == w.tmp {
		return &fs.PathError{Op: failed.Op, Path: w.tmp, Err: failed.Err}
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok && filepath.Dir(failed.Old) == w.tmp {
		return &os.LinkError{Op: failed.Op, Old: w.tmp, New: failed.New, Err: failed.Err}
	}
	return err
}

// create puts data under a name that must be free; the error wraps fs.ErrExist when it is not. It never overwrites. synced has the data on
// the disk before the name.
func (w *files) create(name string, data []byte, synced bool) error {
	if synced {
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
	}
	target := filepath.Join(w.dir, name)
	err := w.persist(func() error {
		if !synced { // with a sync there is nothing to gain
			if err := w.createUnnamed(target, data); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
		}
		temp, err := w.temp(data, synced)
		if err != nil {
			return err
		}
		if err = renameNew(temp, target); err != nil {
			_ = os.Remove(temp) // tmp/ is emptied at start anyway
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", name, asSyncError(target, err))
	}
	return nil
}

// temp writes data to a new file in tmp/ and returns its path.
func (w *files) temp(data []byte, synced bool) (string, error) {
	// The name is random and not made of the PID: two trees of one process, or of two containers in which every process is PID 1,
	// write at the same time.
	path := filepath.Join(w.tmp, "state-"+strconv.FormatUint(rand.Uint64(), 36))
	fd, err := openDescriptor(unix.AT_FDCWD, path, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, fileMode)
	if err != nil {
		return "", err
	}
	if err := w.writeNew(fd, path, data, synced, nil); err != nil {
		_ = os.Remove(path) // the first error counts
		return "", err
	}
	return path, nil
}

// syncFolder is an open directory whose syncs are shared: one sync serves everybody who asked before it began. Nobody waits for
// a timer; while one sync runs the next batch gathers.
type syncFolder struct {
	f    *os.File
	skip bool         // process durability
	call func() error // f.Sync

	turn   chan struct{} // holds one token, which the one sync that runs has taken; guards failed
	failed error         // the first failure: the kernel reports one once, and a later success says nothing about what it lost
	mu     sync.Mutex    // guards next
	next   *syncBatch
}

type syncBatch struct {
	done chan struct{}
	err  error
}

func openSyncFolder(path string, durability Durability) (*syncFolder, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return newSyncFolder(f, durability), nil
}

func newSyncFolder(f *os.File, durability Durability) *syncFolder {
	d := &syncFolder{f: f, skip: durability != Power, call: f.Sync, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	return d
}

// sync returns when a directory sync that began after the call has ended. The error is a *SyncError; after one
// every later call has it too.
func (d *syncFolder) sync() error {
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
		<-d.turn
		d.mu.Lock()
		d.next = nil // whoever comes from here on may have written after this sync began
		d.mu.Unlock()
		if d.failed == nil {
			if err := d.call(); err != nil {
				d.failed = &SyncError{d.f.Name(), err}
			}
		}
		batch.err = d.failed
		close(batch.done)
		d.turn <- struct{}{}
	}
	<-batch.done
	return batch.err
}

func (d *syncFolder) close() error { return d.f.Close() }

// writeNew writes a new file, gives it its mode, whatever the umask is, has then called with it, and closes it. That the mode is right needs to be seen
// once: nothing in this process changes its umask.
func (w *files) writeNew(fd int, path string, data []byte, synced bool, then func() error) error {
	err := writeAll(fd, path, data)
	if err == nil && !w.mode.Load() {
		err = w.setMode(fd, path)
	}
	if err == nil && synced {
		err = again("sync", path, func() error { return unix.Fsync(fd) })
	}
	if err == nil && then != nil {
		err = then()
	}
	if clErr := unix.Close(fd); err == nil && clErr != nil && !errors.Is(clErr, unix.EINTR) { // it is closed then, see close(2)
		err = &fs.PathError{Op: "close", Path: path, Err: clErr}
	}
	return err
}

func (w *files) setMode(fd int, path string) error {
	var st unix.Stat_t
	if err := again("stat", path, func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Mode&0o777 == fileMode {
		w.mode.Store(true)
		return nil
	}
	return again("chmod", path, func() error { return unix.Fchmod(fd, fileMode) })
}

func writeAll(fd int, path string, data []byte) error {
	for len(data) > 0 {
		var n int
		if err := again("write", path, func() (err error) {
			if n, err = unix.Write(fd, data); err == nil && n == 0 {
				err = io.ErrShortWrite
			}
			return err
		}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// again calls until no signal cuts the call short, and says in the error what it was.
func again(op, path string, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
}
