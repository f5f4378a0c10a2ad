package statefs

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spare returns how many files more this process may open, and its limit. Beyond most it need not be exact.
func spare(of syscall.RawConn, most int) (free, limit int, err error) {
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		return 0, 0, err
	}
	limit = int(min(rlimit.Cur, 1<<30))
	// Since Linux 6.2 the size of this folder is the number of open files, see proc_pid_fd(5).
	if info, err := os.Stat("/proc/self/fd"); err == nil && info.Size() > 0 {
		return max(limit-int(info.Size()), 0), limit, nil
	}
	free, err = trySpare(of, most)
	return free, limit, err
}

// trying is held by the one call that tries.
var trying sync.Mutex

// mostTried bounds how many are tried.
const mostTried = 64

// trySpare opens as many as it is asked for, and closes them again. The number of one new descriptor would say nothing: the kernel gives
// out the lowest, and there may be others taken above it.
func trySpare(of syscall.RawConn, most int) (free int, err error) {
	trying.Lock()
	defer trying.Unlock()
	var failed error
	err = of.Control(func(fd uintptr) {
		var taken []int
		for len(taken) < min(most, mostTried) && failed == nil {
			var one int
			if one, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
				taken = append(taken, one)
			}
		}
		for _, one := range taken {
			_ = unix.Close(one) // nothing was written to it
		}
		free = len(taken)
	})
	switch {
	case errors.Is(failed, unix.EMFILE):
		failed = nil
	case free == mostTried:
		free = most // as far as anybody can tell
	}
	return free, errors.Join(err, failed)
}
