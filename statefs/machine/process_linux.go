package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is USER_HZ, which Linux fixes at 100 for every architecture that Go runs on; see proc(5).
const clockTicks = 100

// ProcessStart returns when a process of our PID namespace started, and false if there is none. A
// zombie counts as gone: it will never answer a request. See proc(5), /proc/PID/stat fields 3 and
// 22, and btime in /proc/stat.
func ProcessStart(pid int) (at time.Time, alive bool, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	fields := statFields(stat)
	if len(fields) < 20 {
		return time.Time{}, false, fmt.Errorf("inspect process %d: /proc says %q", pid, stat)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return time.Time{}, false, nil
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	boot, err := bootTime()
	if err != nil {
		return time.Time{}, false, err
	}
	return boot.Add(time.Duration(ticks) * (time.Second / clockTicks)), true, nil
}

// statFields returns the fields of /proc/PID/stat from the third on. The second is the program's name in parentheses
// and may hold any bytes.
func statFields(stat []byte) [][]byte { return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) }

func bootTime() (time.Time, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("find the boot time: %w", err)
	}
	for line := range bytes.Lines(data) {
		if text, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			seconds, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("find the boot time: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New("find the boot time: /proc/stat has no btime")
}

// PIDNamespace returns the PID namespace of this process in the form of readlink(1); see
// pid_namespaces(7).
func PIDNamespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// Flags of a process in /proc/PID/stat, field 9, named as in include/linux/sched.h.
const (
	flagExiting  = 0x4   // PF_EXITING
	flagSignaled = 0x400 // PF_SIGNALED: killed by a signal
)

// sigKill is the bit of SIGKILL in the signal sets of /proc/PID/status.
const sigKill = 1 << 8

// Exiting reports whether a process of our PID namespace is gone, was killed or is exiting. It
// exists, and keeps its locks, until the kernel has freed its memory. See proc(5).
func Exiting(pid int) bool {
	folder := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return os.IsNotExist(err)
	}
	// Read after the status: the signal is pending until the process begins to exit.
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return os.IsNotExist(err)
	}
	return killPending(status) || exitFlagged(stat)
}

// killPending reports whether SIGKILL is pending for a process.
func killPending(status []byte) bool {
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		if set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64); err == nil && set&sigKill != 0 {
			return true
		}
	}
	return false
}

// exitFlagged reports whether a process is exiting or a zombie.
func exitFlagged(stat []byte) bool {
	fields := statFields(stat)
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return bytes.ContainsAny(fields[0], "ZX") || err == nil && flags&(flagExiting|flagSignaled) != 0
}

// LockHolder returns the PID of the process that holds a flock on an open file, 0 if it is
// unknown. See proc(5), /proc/locks.
func LockHolder(f *os.File) int {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	number := fmt.Sprintf(":%d", stat.Ino)
	whole := fmt.Sprintf("%02x:%02x%s", unix.Major(stat.Dev), unix.Minor(stat.Dev), number)
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[3] != "WRITE" || !strings.HasSuffix(fields[5], number) {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err == nil && pid > 0 && (fields[5] == whole || hasLocked(pid, info)) {
			return pid
		}
	}
	return 0
}

// hasLocked reports whether a process has this file open and locked. On file systems with several
// volumes (btrfs, overlay) the device in the list of locks differs from that of the file, and the
// inode number alone is ambiguous, so a wrong process could be named.
func hasLocked(pid int, file os.FileInfo) bool {
	process := fmt.Sprintf("/proc/%d/", pid)
	open, err := os.ReadDir(process + "fd")
	if err != nil {
		return false
	}
	for _, entry := range open {
		if info, err := os.Stat(process + "fd/" + entry.Name()); err != nil || !os.SameFile(info, file) {
			continue
		}
		if text, err := os.ReadFile(process + "fdinfo/" + entry.Name()); err == nil && bytes.Contains(text, []byte("FLOCK")) {
			return true
		}
	}
	return false
}

// freeDescriptors returns how many more files this process may open, and its limit. Above most,
// free need not be exact.
func freeDescriptors(of *os.File, most int) (free, limit int, err error) {
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
func probeDescriptors(of *os.File, most int) (free int, err error) {
	probing.Lock()
	defer probing.Unlock()
	raw, err := of.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
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
