package files

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Flock is flock(2), retried on EINTR.
func Flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsNamed reports whether path is still the name of an open file.
func IsNamed(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(held, named)
}

// WritePID makes the PID of this process, on a line, the content of a lock file.
func WritePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
