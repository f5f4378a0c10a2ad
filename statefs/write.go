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

// Durability is what an acknowledgement promises.
type Durability string

const (
	// Power survives a power cut: files and directories are synced before an answer is given. It is the default.
	Power Durability = "power"
	// Process survives the death of the daemon only: a power cut may empty or lose files.
	Process Durability = "process"
)

// maxSyncs bounds concurrent file syncs. Each occupies an operating system thread, and more of them
// only wait longer for the same disk.
const maxSyncs = 64

// files is the only code that gives files their names. Content comes before the name, so no reader
// and no crash sees half a file. syncFolder syncs the directories.
type files struct {
	dir        string // absolute path of the storage directory
	tmp        string // absolute path of tmp/, on the same file system and never watched
	durability Durability
	slots      chan struct{}
	named      atomic.Bool // the file system has no unnamed files
	mode       atomic.Bool // new files get the right mode without a chmod
	// corrupt gets what is in the place of a file or its folder: a rename would delete it, and cannot
	// replace a folder. A keeper has none.
	corrupt *corruptFolder
}

// SyncError reports that the disk did not accept a write. After a failed sync the content of the
// disk is unknown (the kernel marks the pages clean), so the daemon ends and recovers from what it
// can read back.
type SyncError struct {
	Path string
	Err  error
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("sync %s: %v; the disk may be failing or full: check it, then start the daemon again", e.Path,
		e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// replace writes data under name (relative to the storage), replacing what was there. It syncs the
// data first if the durability requires it, or if always is set.
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

// rewrite is replace for a name that must exist. The error wraps fs.ErrNotExist if it does not, so
// that a file removed by a person stays removed.
func (w *files) rewrite(name string, data []byte) error {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	info, err := os.Lstat(filepath.Join(w.dir, name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err) // persist would take it for a missing temporary file
	}
	if !info.Mode().IsRegular() {
		return w.put(name, data, w.durability == Power)
	}
	return w.putWith(name, data, w.durability == Power, func(temp, target string) error {
		err := swap(temp, target)
		if err == nil {
			_ = os.Remove(temp) // the replaced file, if any
		}
		return err
	})
}

func (w *files) put(name string, data []byte, synced bool) error {
	return w.putWith(name, data, synced, func(temp, target string) error {
		if dir := filepath.Dir(name); w.corrupt != nil && dir != jobsDir && dir != lanesDir {
			// what people put there is moved to corrupt/ and not deleted
			if err := w.corrupt.clearForRename(name); err != nil {
				return err
			}
		}
		return rename(temp, target)
	})
}

func (w *files) putWith(name string, data []byte, synced bool, move func(from, to string) error) error {
	target := filepath.Join(w.dir, name)
	err := w.persist(name, func() error {
		temp, err := w.temp(data, synced)
		if err != nil {
			return err
		}
		if err = move(temp, target); err != nil {
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

// asSyncError turns a failed sync into a *SyncError: it ends the daemon, while other write errors,
// such as a full disk, only fail the request.
func asSyncError(target string, err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Op == "sync" {
		return &SyncError{target, failed.Err}
	}
	return err
}

// persist retries a write whose temporary file disappeared: a starting daemon empties tmp/, even
// while another process is writing there, or tmp/ itself was removed. It retries a write once it has
// made a folder in the place of a file. Both may happen to one write, in any order.
func (w *files) persist(name string, write func() error) error {
	err := write()
	for range 4 {
		var again bool
		if again, err = w.restoreFolders(name, err); !again {
			break
		}
		err = write()
	}
	return w.unnamed(err)
}

// restoreFolders makes the folders whose absence made a write fail, and reports whether to write again. Otherwise it
// returns why not.
func (w *files) restoreFolders(name string, failed error) (again bool, err error) {
	switch {
	case errors.Is(failed, unix.ENOTDIR) && w.corrupt != nil:
		for _, folder := range []string{tmpDir, filepath.Dir(name)} {
			if folder == jobsDir { // the watch of the folder ends the daemon
				continue
			}
			if err := w.corrupt.makeFolder(folder); err != nil {
				return false, err
			}
		}
		return true, nil
	case errors.Is(failed, fs.ErrNotExist):
		err := os.Mkdir(w.tmp, folderMode) // but not its parents: a removed storage stays removed
		if err == nil {
			err = os.Chmod(w.tmp, folderMode)
		}
		return err == nil || errors.Is(err, fs.ErrExist), failed
	}
	return false, failed
}

// unnamed removes the random name of a temporary file from an error. The name helps no reader, and
// equal errors would differ and be logged each time.
func (w *files) unnamed(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && filepath.Dir(failed.Path) == w.tmp {
		return &fs.PathError{Op: failed.Op, Path: w.tmp, Err: failed.Err}
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok && filepath.Dir(failed.Old) == w.tmp {
		return &os.LinkError{Op: failed.Op, Old: w.tmp, New: failed.New, Err: failed.Err}
	}
	return err
}

// create writes data under a name that must be free; the error wraps fs.ErrExist if it is not. It
// never overwrites. With synced the data is on disk before the name.
func (w *files) create(name string, data []byte, synced bool) error {
	if synced {
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
	}
	target := filepath.Join(w.dir, name)
	err := w.persist(name, func() error {
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
	// The name is random instead of the PID: two trees of one process, or two containers in which
	// both processes have PID 1, may write at the same time.
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

// syncFolder is an open directory with shared syncs: one sync serves every call made before it
// began. No timer is involved; while one sync runs, the next batch gathers.
type syncFolder struct {
	f    *os.File
	skip bool         // process durability
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

func openSyncFolder(path string, durability Durability) (*syncFolder, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0) // does not block on a fifo
	if err != nil {
		return nil, err
	}
	return newSyncFolder(f, durability), nil
}

func newSyncFolder(f *os.File, durability Durability) *syncFolder {
	d := &syncFolder{f: f, skip: durability != Power, call: f.Sync, token: make(chan struct{}, 1)}
	d.token <- struct{}{}
	return d
}

// sync returns after a directory sync that began after the call. The error is a *SyncError; after
// the first one, every later call returns it.
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

func (d *syncFolder) close() error { return d.f.Close() }

// writeNew writes a new file, sets its mode whatever the umask is, calls then, and closes it. Once
// one file got the right mode without a chmod, the mode is no longer checked: nothing in this
// process changes its umask.
func (w *files) writeNew(fd int, path string, data []byte, synced bool, then func() error) error {
	err := writeAll(fd, path, data)
	if err == nil && !w.mode.Load() {
		err = w.setMode(fd, path)
	}
	if err == nil && synced {
		err = retryInterrupted("sync", path, func() error { return unix.Fsync(fd) })
	}
	if err == nil && then != nil {
		err = then()
	}
	if clErr := unix.Close(fd); err == nil && clErr != nil && !errors.Is(clErr, unix.EINTR) {
		// after EINTR it is closed, see close(2)
		err = &fs.PathError{Op: "close", Path: path, Err: clErr}
	}
	return err
}

func (w *files) setMode(fd int, path string) error {
	var st unix.Stat_t
	if err := retryInterrupted("stat", path, func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Mode&0o777 == fileMode {
		w.mode.Store(true)
		return nil
	}
	return retryInterrupted("chmod", path, func() error { return unix.Fchmod(fd, fileMode) })
}

func writeAll(fd int, path string, data []byte) error {
	for len(data) > 0 {
		var n int
		if err := retryInterrupted("write", path, func() (err error) {
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

// retryInterrupted retries a call on EINTR and adds the operation and the path to its error.
func retryInterrupted(op, path string, call func() error) error {
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
