package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// The files of schedules/: ENDPOINT.json is what the daemon knows of the schedule of a job, and ENDPOINT.disabled, which anybody may make and
// remove, switches it off.
const (
	scheduleState    = ".json"
	scheduleDisabled = ".disabled"
	scheduleLimit    = 1 << 20
)

var endpointName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func scheduleFile(endpoint, suffix string) (string, error) {
	if !endpointName.MatchString(endpoint) {
		return "", fmt.Errorf("schedule of %q: not the endpoint name of a job", shorten(endpoint))
	}
	return path.Join(schedulesDir, endpoint+suffix), nil
}

// ScheduleEnabled tells whether the schedule of a job, by its endpoint name, is switched on.
func (t *Tree) ScheduleEnabled(endpoint string) (bool, error) {
	name, err := scheduleFile(endpoint, scheduleDisabled)
	if err != nil {
		return false, err
	}
	_, err = t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("schedule of %s: %w", endpoint, err)
	}
	return false, nil
}

// EnableSchedule switches the schedule of a job on or off. It is durable when it returns.
func (t *Tree) EnableSchedule(endpoint string, on bool) error {
	name, err := scheduleFile(endpoint, scheduleDisabled)
	if err != nil {
		return err
	}
	if on {
		err = t.root.Remove(name)
	} else {
		err = t.files.create(name, formatStamp(t.options.Now(), nil), false)
	}
	if errors.Is(err, fs.ErrNotExist) && on || errors.Is(err, fs.ErrExist) && !on {
		err = nil // it is so already; who made it so may not have synced it
	}
	if err != nil {
		return fmt.Errorf("switch the schedule of %s: %w", endpoint, err)
	}
	return t.syncSchedules()
}

// ReadSchedule returns what the daemon wrote of the schedule of a job. The error wraps fs.ErrNotExist when that is nothing.
func (t *Tree) ReadSchedule(endpoint string) ([]byte, error) {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return nil, err
	}
	return t.readRegular(t.root, name, scheduleLimit)
}

// WriteSchedule replaces what is known of the schedule of a job. It is durable when it returns.
func (o *Owner) WriteSchedule(endpoint string, data []byte) error {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return err
	}
	if err := o.files.replace(name, append(data, '\n'), false); err != nil {
		return fmt.Errorf("write the schedule of %s: %w", endpoint, err)
	}
	return o.syncSchedules()
}

// QuarantineSchedule puts what was written of the schedule of a job into corrupt/, because it cannot be understood, with the reason beside it.
func (o *Owner) QuarantineSchedule(endpoint, reason string) error {
	name, err := scheduleFile(endpoint, scheduleState)
	if err != nil {
		return err
	}
	return o.quarantine(name, reason)
}

func (t *Tree) syncSchedules() error {
	folder, err := openSyncFolder(filepath.Join(t.dir, schedulesDir), t.options.Durability)
	if err != nil {
		return fmt.Errorf("sync %s: %w", schedulesDir, err)
	}
	err = folder.sync()
	_ = folder.close() // opened for reading
	return err
}

// ScheduleFile is a file of schedules/.
type ScheduleFile struct {
	Name, Endpoint string
	// Known says that the name is one of those that mean something, Disables that it switches the schedule of Endpoint off.
	Known, Disables bool
}

// ScheduleFiles returns the files of schedules/, but for those that begin with a dot.
func (t *Tree) ScheduleFiles() ([]ScheduleFile, error) {
	entries, err := fs.ReadDir(t.root.FS(), schedulesDir)
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
