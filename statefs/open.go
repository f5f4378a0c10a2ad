package statefs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openFile is os.OpenFile without what only sockets and pipes need: the package os asks the poller of the runtime about every file that
// it opens, and the kernel answers for each regular one that it has nothing to poll. A link in the last part of the path is not followed, and
// the open waits for nobody.
func openFile(path string, flags int, mode uint32) (*os.File, error) {
	return openAt(unix.AT_FDCWD, path, path, flags, mode)
}

// openAt is openFile for a name in an open folder; path is what messages call it.
func openAt(folder int, name, path string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(folder, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// rename is os.Rename without a look at the target, which the kernel takes too.
func rename(from, to string) error {
	for {
		err := unix.Rename(from, to)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}
