package statefs

import (
	"bytes"
	"os"
	"strconv"
)

// Flags of a process in /proc/PID/stat, field 9, as include/linux/sched.h names them.
const (
	flagExiting  = 0x4   // PF_EXITING
	flagSignaled = 0x400 // PF_SIGNALED: a signal ends it
)

// sigKill is SIGKILL in the sets of /proc/PID/status.
const sigKill = 1 << 8

// isDying reports whether a process of our PID namespace has been killed or is ending: it is there for as long as the kernel needs to take its
// memory back, and holds its locks until then. See proc(5).
func isDying(pid int) bool {
	folder := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return os.IsNotExist(err)
	}
	// Asked for afterwards: the signal is pending until the process begins to end.
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return os.IsNotExist(err)
	}
	return killPending(status) || ending(stat)
}

// killPending reports whether SIGKILL is on its way to a process.
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

// ending reports whether a process is on its way out, or a zombie.
func ending(stat []byte) bool {
	// The second field is the program's name in parentheses and may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return bytes.ContainsAny(fields[0], "ZX") || err == nil && flags&(flagExiting|flagSignaled) != 0
}
