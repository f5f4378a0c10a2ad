package statefs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openNonblock keeps an open from waiting for the other end of a fifo, and from following a link in the last part of a path.
const openNonblock = unix.O_NONBLOCK | unix.O_NOFOLLOW

// renameNew puts a file under a name that must be free, in whatever folder of the same file system, and takes its old name away.
// The error wraps fs.ErrExist when the new name is taken.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return linkNew(from, to) // a file system without RENAME_NOREPLACE
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// renameFree renames a file inside one folder to a name that must be free: the error wraps fs.ErrExist when it is not, and
// fs.ErrNotExist when the old name is gone. Renaming the source is the compare-and-swap of the state machine: of two renames
// that race for one marker exactly one succeeds.
func renameFree(folder *os.File, from, to string) error {
	raw, err := folder.SyscallConn()
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	err = withDescriptor(raw, func(fd int) error { return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system without RENAME_NOREPLACE: look first, as everywhere else.
		return renamePortable(folder.Name(), from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// swap puts a file in the place of another one in one step, when there is one: the error wraps fs.ErrNotExist when there is none. What was there has the
// name of the first one then.
func swap(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return swapPortable(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "swap", Old: from, New: to, Err: err}
	}
	return nil
}
