//go:build !linux

package machine

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessStart reports whether a process exists. Its start time is known on Linux only. Elsewhere
// it is the zero time, so the reuse of a PID by a younger process is not noticed, and the files of
// its predecessor stay.
func ProcessStart(pid int) (at time.Time, alive bool, err error) {
	err = unix.Kill(pid, 0)
	return time.Time{}, err == nil || errors.Is(err, unix.EPERM), nil
}

func PIDNamespace() string { return "" }

// Exiting reports whether a process is gone: only on Linux can it be seen before that.
func Exiting(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// LockHolder returns 0: only Linux shows the holder of a lock.
func LockHolder(*os.File) int { return 0 }

// freeDescriptors reports enough free descriptors: they are counted on Linux only.
func freeDescriptors(_ *os.File, most int) (free, limit int, err error) {
	return most, most, nil
}
