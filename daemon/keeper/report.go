package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

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
		return nil, fmt.Errorf("exit report %s does not say of which run it is and when that ended", name)
	}
	return &r, nil
}
