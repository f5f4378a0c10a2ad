package keeper

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit describes how a command ended.
type Exit struct {
	// Code is the exit code. It is -1 when a signal ended the command (then Signal is set), or when
	// the code is unknown (then Err is set).
	Code int

	// Signal is the name of the signal that ended the command ("SIGKILL"), empty when it exited by itself.
	Signal string

	// Cause is the argument of the first End that came while the command was alive; empty when the
	// command ended by itself.
	Cause string

	// TimedOut is set when the command was ended because it ran longer than its Timeout; Cause is
	// CauseTimeout then.
	TimedOut bool

	// At is when the end of the leader was seen. The rest of the tree may have ended later.
	At time.Time

	// UserTime and SystemTime are the processor time of the leader and of its descendants that were
	// waited for.
	UserTime, SystemTime time.Duration

	// MaxRSS is the largest resident set, in bytes, of the leader or of one of its descendants that
	// were waited for (getrusage(2)). The kernel counts the short time between fork and exec, so it
	// is never less than the memory of this process itself.
	MaxRSS int64

	// Err reports what failed: another part of the program reaped the leader, a process of the tree
	// may not be signalled, or /proc cannot be read. The command is over nevertheless.
	Err error
}

func (e *Exit) setStatus(status syscall.WaitStatus, usage *syscall.Rusage) {
	e.Code = status.ExitStatus()
	if status.Signaled() {
		e.Code, e.Signal = -1, signalName(status.Signal())
	}
	e.UserTime = time.Duration(usage.Utime.Nano())
	e.SystemTime = time.Duration(usage.Stime.Nano())
	e.MaxRSS = int64(usage.Maxrss) * maxRSSUnit //nolint:unconvert // 32 bits wide on some systems
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	// Real-time signals have no names of their own.
	return fmt.Sprintf("SIG%d", int(sig))
}
