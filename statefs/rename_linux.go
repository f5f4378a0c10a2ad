package statefs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openNonblock keeps an open from waiting for the other end of a fifo and from following a link in
// the last part of a path.
const openNonblock = unix.O_NONBLOCK | unix.O_NOFOLLOW

// renameNew moves a file to a name in any folder of the same file system, which must be free. The
// error wraps fs.ErrExist if the new name is taken.
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

// renameFree renames a file inside one folder to a name that must be free. The error wraps
// fs.ErrExist if the name is taken, and fs.ErrNotExist if the old name is gone. This rename is the
// compare-and-swap of the state machine: of two renames that race for one marker, exactly one
// succeeds.
func renameFree(folder *os.File, from, to string) error {
	raw, err := folder.SyscallConn()
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	err = withDescriptor(raw, func(fd int) error { return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system without RENAME_NOREPLACE: check first, as on other systems.
		return renamePortable(folder.Name(), from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// swap atomically exchanges a file with an existing one. The error wraps fs.ErrNotExist if the
// target does not exist. The replaced file then has the name of the new one.
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
