package statefs

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeDescriptors returns how many more files this process may open, and its limit. Above most,
// free need not be exact.
func freeDescriptors(of syscall.RawConn, most int) (free, limit int, err error) {
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		return 0, 0, err
	}
	limit = int(min(rlimit.Cur, 1<<30))
	// Since Linux 6.2 the size of this folder is the number of open files, see proc_pid_fd(5).
	if info, err := os.Stat("/proc/self/fd"); err == nil && info.Size() > 0 {
		return max(limit-int(info.Size()), 0), limit, nil
	}
	free, err = probeDescriptors(of, most)
	return free, limit, err
}

// probing serialises the probes.
var probing sync.Mutex

// maxProbed bounds the descriptors opened by a probe.
const maxProbed = 64

// probeDescriptors counts free descriptors by opening up to most of them and closing them again.
// The number of a single new descriptor would not be enough: the kernel returns the lowest free
// one, and higher ones may be taken.
func probeDescriptors(of syscall.RawConn, most int) (free int, err error) {
	probing.Lock()
	defer probing.Unlock()
	var failed error
	err = of.Control(func(fd uintptr) {
		var taken []int
		for len(taken) < min(most, maxProbed) && failed == nil {
			var one int
			if one, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
				taken = append(taken, one)
			}
		}
		for _, one := range taken {
			_ = unix.Close(one) // it was not written to
		}
		free = len(taken)
	})
	switch {
	case errors.Is(failed, unix.EMFILE):
		failed = nil
	case free == maxProbed:
		free = most // at least that many are free; assume enough
	}
	return free, errors.Join(err, failed)
}
