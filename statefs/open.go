package statefs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDescriptor is os.OpenFile without what only sockets and pipes need: the package os asks the poller of the runtime about every file that
// it opens, and the kernel answers for each regular one that it has nothing to poll. A link in the last part of the path is not followed, and
// the open waits for nobody. The caller closes the descriptor; path is what messages call the file.
func openDescriptor(folder int, name, path string, flags int, mode uint32) (fd int, err error) {
	err = again("open", path, func() error {
		fd, err = unix.Openat(folder, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
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
