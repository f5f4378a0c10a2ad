package statefs

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// createUnnamed writes a file that has no name until it is whole, and then gives it one that must be free: half the work of a temporary
// name and a rename, nobody can take it away meanwhile, and nothing is left of it when the process ends. See O_TMPFILE in open(2). The error wraps
// errors.ErrUnsupported where there are no such files.
func (w *files) createUnnamed(target string, data []byte) error {
	if w.named.Load() {
		return errors.ErrUnsupported
	}
	f, err := openFile(w.tmp, unix.O_WRONLY|unix.O_TMPFILE, fileMode)
	for _, never := range []error{unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, never) {
			w.named.Store(true)
			return errors.ErrUnsupported
		}
	}
	if err != nil {
		return err
	}
	err = fill(f, data, false)
	if err == nil {
		err = nameIt(f, target)
	}
	if clErr := f.Close(); err == nil {
		err = clErr
	}
	return err
}

// nameIt gives a file its first name.
func nameIt(f *os.File, target string) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = withDescriptor(raw, func(fd int) error {
		err := unix.Linkat(fd, "", unix.AT_FDCWD, target, unix.AT_EMPTY_PATH)
		if errors.Is(err, unix.ENOENT) { // it takes a capability before Linux 6.10
			err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, target, unix.AT_SYMLINK_FOLLOW)
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT): // no /proc, or no folder: the other way says which
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "link", Old: f.Name(), New: target, Err: err}
}
