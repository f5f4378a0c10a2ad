// Package files writes, renames, opens and locks files so that no crash and no other program sees half of one: content
// before name, no name that is taken is overwritten unless that is the purpose, no link is followed, no fifo blocks. It
// knows no operations, and of a storage directory only its path and its folder for temporary files.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// MaxSyncs bounds concurrent file syncs. Each occupies an operating system thread, and more of them
// only wait longer for the same disk.
const MaxSyncs = 64

const (
	folderMode = 0o750
	// Mode is the mode of every file that this package creates.
	Mode = 0o640
)

// Writer gives the files of one directory their names, and nothing else does. Content comes before the name, so no
// reader and no crash sees half a file. A Folder syncs the directories. It is safe for concurrent use.
type Writer struct {
	dir       string // absolute path of the directory
	tmp       string // absolute path of its folder for temporary files, on the same file system and never watched
	durable   bool
	slots     chan struct{}
	named     atomic.Bool // the file system has no unnamed files
	mode      atomic.Bool // new files get the right mode without a chmod
	obstacles Obstacles
}

// Obstacles moves away what is in the place of a file or of its folder: a rename would delete it, and cannot replace a
// folder. Names are relative to the directory of the Writer.
type Obstacles interface {
	// Clear is called before a file is renamed to a name.
	Clear(name string) error
	// RestoreFolder makes a folder, if necessary in the place of a file.
	RestoreFolder(name string) error
}

// NewWriter returns a Writer for a directory, given its absolute path and the name of its folder for temporary files.
// With durable, Replace syncs each file. obstacles may be nil.
func NewWriter(dir, tmp string, durable bool, obstacles Obstacles) *Writer {
	return &Writer{
		dir: dir, tmp: filepath.Join(dir, tmp), durable: durable, obstacles: obstacles, slots: make(chan struct{}, MaxSyncs),
	}
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

// Replace writes data under name (relative to the directory), replacing what was there. It syncs the
// data first if the durability requires it, or if always is set.
func (w *Writer) Replace(name string, data []byte, always bool) error {
	return w.put(name, data, w.durable || always)
}

// ReplaceUnsynced is Replace without any sync: for process durability, and for files whose loss costs nothing.
func (w *Writer) ReplaceUnsynced(name string, data []byte) error { return w.put(name, data, false) }

// Rewrite is Replace for a name that must exist. The error wraps fs.ErrNotExist if it does not, so
// that a file removed by a person stays removed.
func (w *Writer) Rewrite(name string, data []byte) error {
	info, err := os.Lstat(filepath.Join(w.dir, name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err) // persist would take it for a missing temporary file
	}
	if !info.Mode().IsRegular() {
		return w.put(name, data, w.durable)
	}
	return w.putWith(name, data, w.durable, func(temp, target string) error {
		err := swap(temp, target)
		if err == nil {
			_ = os.Remove(temp) // the replaced file, if any
		}
		return err
	})
}

func (w *Writer) put(name string, data []byte, synced bool) error {
	return w.putWith(name, data, synced, func(temp, target string) error {
		if w.obstacles != nil {
			if err := w.obstacles.Clear(name); err != nil {
				return err
			}
		}
		return rename(temp, target)
	})
}

func (w *Writer) putWith(name string, data []byte, synced bool, move func(from, to string) error) error {
	target := filepath.Join(w.dir, name)
	err := w.persist(name, synced, func() error { return w.writeAndMove(data, synced, target, move) })
	if err != nil {
		return fmt.Errorf("write %s: %w", name, asSyncError(target, err))
	}
	return nil
}

// Sync syncs a file that was written without it. The error is a *SyncError.
func (w *Writer) Sync(f *os.File) error {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	if err := f.Sync(); err != nil {
		return &SyncError{f.Name(), err}
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
// made a folder in the place of a file. Both may happen to one write, in any order. A synced write waits for a slot.
func (w *Writer) persist(name string, synced bool, write func() error) error {
	if synced {
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
	}
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
func (w *Writer) restoreFolders(name string, failed error) (again bool, err error) {
	switch {
	case errors.Is(failed, unix.ENOTDIR) && w.obstacles != nil:
		for _, folder := range []string{filepath.Base(w.tmp), filepath.Dir(name)} {
			if err := w.obstacles.RestoreFolder(folder); err != nil {
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
func (w *Writer) unnamed(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok && filepath.Dir(failed.Path) == w.tmp {
		return &fs.PathError{Op: failed.Op, Path: w.tmp, Err: failed.Err}
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok && filepath.Dir(failed.Old) == w.tmp {
		return &os.LinkError{Op: failed.Op, Old: w.tmp, New: failed.New, Err: failed.Err}
	}
	return err
}

// Create writes data under a name that must be free; the error wraps fs.ErrExist if it is not. It
// never overwrites. With synced the data is on disk before the name.
func (w *Writer) Create(name string, data []byte, synced bool) error {
	target := filepath.Join(w.dir, name)
	err := w.persist(name, synced, func() error {
		if !synced { // with a sync there is nothing to gain
			if err := w.createUnnamed(target, data); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
		}
		return w.writeAndMove(data, synced, target, renameNew)
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", name, asSyncError(target, err))
	}
	return nil
}

// writeAndMove writes data to a new file in tmp/ and moves it to its place.
func (w *Writer) writeAndMove(data []byte, synced bool, target string, move func(from, to string) error) error {
	// The name is random instead of the PID: two trees of one process, or two containers in which
	// both processes have PID 1, may write at the same time.
	temp := filepath.Join(w.tmp, "state-"+strconv.FormatUint(rand.Uint64(), 36))
	fd, err := OpenDescriptor(unix.AT_FDCWD, temp, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, Mode)
	if err != nil {
		return err
	}
	err = w.writeNew(fd, temp, data, synced, nil)
	if err == nil {
		err = move(temp, target)
	}
	if err != nil {
		_ = os.Remove(temp) // the first error counts, and tmp/ is emptied at start anyway
	}
	return err
}

// writeNew writes a new file, sets its mode whatever the umask is, calls then, and closes it. Once
// one file got the right mode without a chmod, the mode is no longer checked: nothing in this
// process changes its umask.
func (w *Writer) writeNew(fd int, path string, data []byte, synced bool, then func() error) error {
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

func (w *Writer) setMode(fd int, path string) error {
	var st unix.Stat_t
	if err := retryInterrupted("stat", path, func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Mode&0o777 == Mode {
		w.mode.Store(true)
		return nil
	}
	return retryInterrupted("chmod", path, func() error { return unix.Fchmod(fd, Mode) })
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

// Link gives an existing file a second name, replacing any file there, and sets its modification
// time.
func (w *Writer) Link(from, name string, modified time.Time) error {
	source, target := filepath.Join(w.dir, from), filepath.Join(w.dir, name)
	err := w.persist(name, false, func() error {
		temp := filepath.Join(w.tmp, "link-"+path.Base(name))
		if err := os.Link(source, temp); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err := errors.Join(os.Chtimes(temp, modified, modified), os.Rename(temp, target))
		_ = os.Remove(temp) // rename(2) does nothing if both names are the same file
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Fill stores what write writes under a name, as a whole and synced. If write reports false,
// nothing is stored.
func (w *Writer) Fill(name string, write func(io.Writer) (bool, error)) error {
	target := filepath.Join(w.dir, name)
	return w.persist(name, false, func() error {
		f, err := renameio.NewPendingFile(target, renameio.WithTempDir(w.tmp), renameio.WithPermissions(Mode),
			renameio.IgnoreUmask())
		if err != nil {
			return err
		}
		defer func() { _ = f.Cleanup() }() // does nothing after the file has its name
		some, err := write(f)
		if err != nil || !some {
			return err
		}
		return asSyncError(target, f.CloseAtomicallyReplace())
	})
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

func writeAndSync(f *os.File, data []byte, offset int64) error {
	if _, err := f.WriteAt(data, offset); err != nil {
		return err
	}
	return f.Sync()
}

// asFailedSync makes a *SyncError of every error but a full disk: a synced write does not say which part of it failed.
func asFailedSync(f *os.File, err error) error {
	if err == nil || DiskFull(err) {
		return err
	}
	return &SyncError{f.Name(), err}
}
