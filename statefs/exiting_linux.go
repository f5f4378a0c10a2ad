package statefs

import (
	"bytes"
	"os"
	"strconv"
)

// Flags of a process in /proc/PID/stat, field 9, named as in include/linux/sched.h.
const (
	flagExiting  = 0x4   // PF_EXITING
	flagSignaled = 0x400 // PF_SIGNALED: killed by a signal
)

// sigKill is the bit of SIGKILL in the signal sets of /proc/PID/status.
const sigKill = 1 << 8

// isExiting reports whether a process of our PID namespace is gone, was killed or is exiting. It
// exists, and keeps its locks, until the kernel has freed its memory. See proc(5).
func isExiting(pid int) bool {
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
	// The second field is the program's name in parentheses and may hold any bytes.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return bytes.ContainsAny(fields[0], "ZX") || err == nil && flags&(flagExiting|flagSignaled) != 0
}
