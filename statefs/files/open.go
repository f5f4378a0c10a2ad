package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Nonblock are the flags that keep an open from waiting for the other end of a fifo and from following a link in
// the last part of a path.
const Nonblock = unix.O_NONBLOCK | unix.O_NOFOLLOW

// ErrIrregular is wrapped if a folder, link, fifo, socket or device has the name of a regular file.
var ErrIrregular = errors.New("not a regular file")

// OpenRegularIn opens a regular file for reading. It checks the name before the open, because a Root
// follows links that stay inside, and the descriptor after it, because the name may have changed in
// between. O_NONBLOCK keeps a fifo from blocking.
func OpenRegularIn(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := root.Lstat(name)
	if IsMissing(err) { // also below a file in the place of a folder
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrIrregular}
	}
	return Regular(root.OpenFile(name, os.O_RDONLY|Nonblock, 0))
}

// Regular takes the results of an open. It closes and refuses anything but a regular file.
func Regular(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrIrregular}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// OpenFile opens a file. A file that it creates has Mode whatever the umask is. It
// follows no link and does not block.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|Nonblock, Mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Size() == 0 && info.Mode().Perm() != Mode {
		err = f.Chmod(Mode)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // the file of another user keeps its mode
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenRegular opens a file for reading that other programs may have replaced. It refuses a symbolic
// link, a folder, a fifo, a socket or a device without following it and without blocking.
func OpenRegular(path string) (*os.File, error) {
	f, _, err := Regular(os.OpenFile(path, os.O_RDONLY|Nonblock, 0))
	switch {
	case errors.Is(err, ErrIrregular):
		return nil, fmt.Errorf("%s is %w", filepath.Base(path), ErrIrregular)
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO): // a link, a socket
		return nil, fmt.Errorf("%s is %w: %w", filepath.Base(path), ErrIrregular, err)
	}
	return f, err
}

// ReadEnd returns what a regular file has from an offset on, at most its last most bytes, and when it was written. It
// opens the file as OpenRegular does.
func ReadEnd(path string, from, most int64) (end []byte, written time.Time, err error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, written, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, written, err
	}
	end = make([]byte, min(max(info.Size()-from, 0), most))
	n, err := f.ReadAt(end, info.Size()-int64(len(end)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, written, err
	}
	return end[:n], info.ModTime(), nil
}

// MakeFolder creates a folder and its parents if they are missing. A new folder has folderMode
// whatever the umask is.
func MakeFolder(path string) error {
	err := MakeNewFolder(path)
	if errors.Is(err, fs.ErrExist) {
		return nil // if it is not a folder, its next use fails
	}
	return err
}

// MakeNewFolder is MakeFolder, but the error wraps fs.ErrExist if something has the name of the folder.
func MakeNewFolder(path string) error {
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), folderMode); err == nil {
			err = os.Mkdir(path, folderMode)
		}
	}
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == folderMode {
		return err
	}
	return os.Chmod(path, folderMode|info.Mode()&os.ModeSetgid) // a parent may pass on its group
}

// WriteNew writes a file that must not exist; otherwise the error wraps fs.ErrExist. The file has Mode
// whatever the umask is.
func WriteNew(path string, content []byte) error {
	fd, err := OpenDescriptor(unix.AT_FDCWD, path, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, Mode)
	if err != nil {
		return err
	}
	return new(Writer).writeNew(fd, path, content, false, nil)
}

// RemoveFolderWith is RemoveFolder for a folder that has mostly no other files than those with the given
// names: it removes them without a listing first.
func RemoveFolderWith(path string, names ...string) error {
	fd, err := OpenDescriptor(unix.AT_FDCWD, path, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		for _, name := range names {
			_ = unix.Unlinkat(fd, name, 0) // RemoveFolder reports the error of a file that stays
		}
		_ = unix.Close(fd) // nothing was written to it
		if unix.Rmdir(path) == nil {
			return nil
		}
	}
	return RemoveFolder(path)
}

// RemoveFolder removes a folder and everything in it. If a file has taken the place of the folder
// above, there is nothing to remove; os.RemoveAll would wait for a writer of a fifo there.
func RemoveFolder(path string) error {
	above, err := os.OpenRoot(filepath.Dir(path) + "/") // the slash refuses everything but a folder
	if IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = above.RemoveAll(filepath.Base(path))
	if IsMissing(err) {
		err = nil
	}
	return errors.Join(err, above.Close())
}

// OpenDescriptor is os.OpenFile without the registration with the runtime's poller, which costs
// system calls and is useless for regular files. It does not follow a link in the last part of the
// path and does not block. The caller closes the descriptor; path is the name of the file in
// errors.
func OpenDescriptor(folder int, name, path string, flags int, mode uint32) (fd int, err error) {
	err = retryInterrupted("open", path, func() error {
		fd, err = unix.Openat(folder, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

// WithDescriptor calls with the descriptor of a file or connection, which stays open during the call, and retries on
// EINTR.
func WithDescriptor(of syscall.Conn, call func(fd int) error) error {
	raw, err := of.SyscallConn()
	if err != nil {
		return err
	}
	return WithRawDescriptor(raw, call)
}

// WithRawDescriptor is WithDescriptor for a connection that is being made.
func WithRawDescriptor(raw syscall.RawConn, call func(fd int) error) error {
	var result error
	err := raw.Control(func(fd uintptr) {
		for {
			if result = call(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return result
}

// KindOf names the kind of a file, for messages about a file of the wrong kind.
func KindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// IsMissing reports whether a file does not exist: it has no name, or a file is in the place of its
// folder.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }
