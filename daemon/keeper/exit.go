package keeper

import (
	"cmp"
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
	Code int `json:"code"`

	// Signal is the name of the signal that ended the command ("SIGKILL"), empty when it exited by itself.
	Signal string `json:"signal,omitempty"`

	// Cause is the argument of the first End that came while the command was alive; empty when the
	// command ended by itself.
	Cause string `json:"cause,omitempty"`

	// TimedOut is set when the command was ended because it ran longer than its Timeout; Cause is
	// CauseTimeout then.
	TimedOut bool `json:"timed_out,omitempty"`

	// At is when the end of the leader was seen. The rest of the tree may have ended later.
	At time.Time `json:"ended_at"`

	// UserSeconds and SystemSeconds are the processor time of the leader and of its descendants that
	// were waited for.
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`

	// PeakMemory is the largest resident set, in bytes, of the leader or of one of its descendants that
	// were waited for (getrusage(2)). The kernel counts the short time between fork and exec, so it
	// is never less than the memory of this process itself.
	PeakMemory int64 `json:"peak_memory"`

	// Err reports what failed: another part of the program reaped the leader, a process of the tree
	// may not be signalled, or /proc cannot be read. The command is over nevertheless.
	Err error `json:"-"`
}

func (e *Exit) setStatus(status syscall.WaitStatus, usage *syscall.Rusage) {
	e.Code = status.ExitStatus()
	if status.Signaled() {
		sig := status.Signal()
		e.Code, e.Signal = -1, cmp.Or(unix.SignalName(sig), fmt.Sprintf("SIG%d", int(sig))) // real-time signals have no names
	}
	e.UserSeconds = time.Duration(usage.Utime.Nano()).Seconds()
	e.SystemSeconds = time.Duration(usage.Stime.Nano()).Seconds()
	e.PeakMemory = int64(usage.Maxrss) * maxRSSUnit //nolint:unconvert // 32 bits wide on some systems
}

// CauseTimeout is the Exit.Cause of a command that ran longer than its Timeout.
const CauseTimeout = "timeout"

// overdue runs when the time of the command is over.
func (p *Process) overdue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exited {
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
	PID int `json:"pid"`
	Exit
	StartedAt time.Time `json:"started_at"`
	Error     string    `json:"error,omitempty"` // the text of Exit.Err
	Label     []byte    `json:"label,omitempty"` // see Command
	Boot      string    `json:"boot_id,omitempty"`
	Keeper    int       `json:"keeper_pid"`
}

// exit returns the end of the command with its error.
func (r *Report) exit() Exit {
	e := r.Exit
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
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("exit report %s cannot be understood, the end of the command counts as not known: %w", name,
			err)
	}
	if r.Version < 1 || r.Version > reportVersion {
		return nil, fmt.Errorf("exit report %s has version %d and this program knows %d: use the newer program", name,
			r.Version, reportVersion)
	}
	if r.Operation == "" || r.Run < 1 || r.At.IsZero() {
		return nil, fmt.Errorf("exit report %s has no operation, run or time of the end", name)
	}
	return &r, nil
}
