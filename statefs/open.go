package statefs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDescriptor is os.OpenFile without the registration with the runtime's poller, which costs
// system calls and is useless for regular files. It does not follow a link in the last part of the
// path and does not block. The caller closes the descriptor; path is the name of the file in
// errors.
func openDescriptor(folder int, name, path string, flags int, mode uint32) (fd int, err error) {
	err = retryInterrupted("open", path, func() error {
		fd, err = unix.Openat(folder, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

// rename is os.Rename without the stat of the target, which the kernel checks too.
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
