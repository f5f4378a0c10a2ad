package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
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

// CauseTimeout is the Exit.Cause of a command that ran longer than its Timeout.
const CauseTimeout = "timeout"

// overdue runs when the time of the command is over.
func (p *Process) overdue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exited && !p.ending {
		p.timedOut = true
		p.endLocked(CauseTimeout)
	}
}

// reportVersion is the version of the exit reports that this package writes. Newer versions are
// rejected.
const reportVersion = 1

// Report describes how a command ended. It is a message of the keeper's protocol, and the file that
// a keeper writes when no daemon acknowledges the end.
type Report struct {
	Version int `json:"version"`
	Key
	PID       int       `json:"pid"`
	Code      int       `json:"code"` // -1: ended by a signal, or unknown
	Signal    string    `json:"signal,omitempty"`
	Cause     string    `json:"cause,omitempty"` // why it was ended, when it did not end by itself
	TimedOut  bool      `json:"timed_out,omitempty"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// The processor time in seconds and the largest memory in bytes; see Exit.
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`
	PeakMemory    int64   `json:"peak_memory"`
	Error         string  `json:"error,omitempty"`
	Label         []byte  `json:"label,omitempty"` // see Command
	Boot          string  `json:"boot_id,omitempty"`
	Keeper        int     `json:"keeper_pid"`
}

// Exit converts the report to an Exit.
func (r *Report) Exit() Exit {
	e := Exit{
		Code: r.Code, Signal: r.Signal, Cause: r.Cause, TimedOut: r.TimedOut, At: r.EndedAt,
		UserTime:   time.Duration(r.UserSeconds * float64(time.Second)),
		SystemTime: time.Duration(r.SystemSeconds * float64(time.Second)),
		MaxRSS:     r.PeakMemory,
	}
	if r.Error != "" {
		e.Err = errors.New(r.Error)
	}
	return e
}

// ReadReport reads an exit report of the storage directory dir; name is Command.Report. The error
// wraps fs.ErrNotExist when there is none.
func ReadReport(dir, name string) (*Report, error) {
	data, err := statefs.ReadExit(dir, name)
	if err != nil {
		return nil, err
	}
	return parseReport(name, data)
}

func parseReport(name string, data []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("exit report %s cannot be understood, the end of the command counts as not known: %w", name,
			err)
	}
	if r.Version < 1 || r.Version > reportVersion {
		return nil, fmt.Errorf("exit report %s has version %d and this program knows %d: use the newer program", name,
			r.Version, reportVersion)
	}
	if r.Operation == "" || r.Run < 1 || r.EndedAt.IsZero() {
		return nil, fmt.Errorf("exit report %s has no operation, run or time of the end", name)
	}
	return &r, nil
}
