package statefs

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// createUnnamed writes a file that has no name until it is complete and then gives it one, which
// must be free. This is half the work of a temporary name and a rename; no other process can remove
// the file before it has its name, and nothing is left of it if the process ends. See O_TMPFILE in
// open(2). The error wraps errors.ErrUnsupported if the file system has no such files.
func (w *files) createUnnamed(target string, data []byte) error {
	if w.named.Load() {
		return errors.ErrUnsupported
	}
	fd, err := openDescriptor(unix.AT_FDCWD, w.tmp, w.tmp, unix.O_WRONLY|unix.O_TMPFILE, fileMode)
	for _, never := range []error{unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, never) {
			w.named.Store(true)
			return errors.ErrUnsupported
		}
	}
	if err != nil {
		return err
	}
	return w.writeNew(fd, w.tmp, data, false, func() error { return linkUnnamed(fd, w.tmp, target) })
}

// linkUnnamed gives such a file its name.
func linkUnnamed(fd int, path, target string) error {
	err := retryInterrupted("link", path, func() error {
		return unix.Linkat(fd, "", unix.AT_FDCWD, target,
			unix.AT_EMPTY_PATH)
	})
	if errors.Is(err, unix.ENOENT) { // it takes a capability before Linux 6.10
		err = retryInterrupted("link", path, func() error {
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, target, unix.AT_SYMLINK_FOLLOW)
		})
	}
	failed, _ := errors.AsType[*fs.PathError](err)
	switch {
	case failed == nil:
		return err
	case errors.Is(err, unix.ENOENT): // no /proc, or no folder: the fallback reports which
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "link", Old: path, New: target, Err: failed.Err}
}
