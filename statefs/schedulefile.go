package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/jobdir/jobdir/statefs/files"
)

// The files of schedules/: ENDPOINT.json is the daemon's state of a job's schedule.
// ENDPOINT.disabled, which any process may create and remove, disables the schedule.
const (
	scheduleState    = ".json"
	scheduleDisabled = ".disabled"
	scheduleLimit    = 1 << 20
)

func scheduleFile(endpoint, suffix string) (string, error) {
	if !isEndpoint(endpoint) {
		return "", fmt.Errorf("schedule of %q: not the endpoint name of a job", shorten(endpoint))
	}
	return path.Join(schedulesDir, endpoint+suffix), nil
}

// Schedules are the files of schedules/. Any process enables and disables a schedule.
type Schedules struct{ *storage }

// OwnerSchedules are the files of schedules/ for the daemon, which alone writes the state of a schedule.
type OwnerSchedules struct{ *Schedules }

// Enabled reports whether the schedule of a job, given its endpoint name, is enabled.
func (s *Schedules) Enabled(endpoint string) (bool, error) {
	name, err := scheduleFile(endpoint, scheduleDisabled)
	if err != nil {
		return false, err
	}
	_, err = s.root.Lstat(name)
	if files.IsMissing(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("schedule of %s: %w", endpoint, err)
	}
	return false, nil
}

// Enable enables or disables the schedule of a job. It is durable when it returns.
func (s *Schedules) Enable(endpoint string, on bool) error {
	name, err := scheduleFile(endpoint, scheduleDisabled)
	if err != nil {
		return err
	}
	if on {
		err = s.root.Remove(name)
	} else {
		err = s.files.Create(name, formatStamp(s.options.Now(), nil), false)
	}
	if files.IsMissing(err) && on || errors.Is(err, fs.ErrExist) && !on {
		err = nil // it is so already, but perhaps not synced
	}
	if err != nil {
		return fmt.Errorf("enable or disable the schedule of %s: %w", endpoint, err)
	}
	return s.syncFolder(schedulesDir)
}

// Read returns the daemon's state of a job's schedule. The error wraps fs.ErrNotExist if
// there is none.
func (s *Schedules) Read(endpoint string) ([]byte, error) {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return nil, err
	}
	return s.readRegular(name, scheduleLimit)
}

// Write replaces the state of a job's schedule. It is durable when it returns.
func (s *OwnerSchedules) Write(endpoint string, data []byte) error {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return err
	}
	if err := s.files.Replace(name, append(data, '\n'), false); err != nil {
		return fmt.Errorf("write the schedule of %s: %w", endpoint, err)
	}
	return s.syncFolder(schedulesDir)
}

// Quarantine moves the invalid state of a job's schedule to corrupt/ with the reason beside
// it.
func (s *OwnerSchedules) Quarantine(endpoint, reason string) error {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return err
	}
	return s.corrupt.move(name, reason)
}

// ScheduleFile is a file of schedules/.
type ScheduleFile struct {
	Name, Endpoint string
	// Known means that the name is valid, Disables that the file disables the schedule of Endpoint.
	Known, Disables bool
}

// List returns the files of schedules/, except names that begin with a dot.
func (s *Schedules) List() ([]ScheduleFile, error) {
	entries, err := s.readFolder(schedulesDir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", schedulesDir, err)
	}
	var files []ScheduleFile
	for _, entry := range entries {
		f := ScheduleFile{Name: entry.Name()}
		if strings.HasPrefix(f.Name, ".") {
			continue
		}
		if f.Endpoint, f.Disables = strings.CutSuffix(f.Name, scheduleDisabled); f.Disables {
			f.Known = true
		} else {
			f.Endpoint, f.Known = strings.CutSuffix(f.Name, scheduleState)
		}
		files = append(files, f)
	}
	return files, nil
}
