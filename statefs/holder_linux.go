package statefs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// folderHolder returns the PID of the process that holds a flock on an open file, 0 if it is
// unknown. See proc(5), /proc/locks.
func folderHolder(f *os.File) int {
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
