package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// Lanes are the files of lanes/, with which any process pauses, closes and resizes lanes.
type Lanes struct{ *storage }

// OwnerLanes are the files of lanes/ for the daemon, which also keeps its own there.
type OwnerLanes struct{ *Lanes }

// Dir returns the absolute path of lanes/.
func (l *Lanes) Dir() string { return filepath.Join(l.dir, lanesDir) }

// List lists the files of lanes/ that control something, and the stray names that look as if
// they should.
func (l *Lanes) List() (files []LaneFile, odd []string, err error) {
	entries, err := l.readFolder(lanesDir)
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", lanesDir, err)
	}
	for _, entry := range entries {
		switch f, ok := ParseLaneFile(entry.Name()); {
		case ok:
			files = append(files, f)
		case StrayLaneFile(entry.Name()):
			odd = append(odd, entry.Name())
		}
	}
	return files, odd, nil
}

// Read reads a file of lanes/. The error wraps fs.ErrNotExist if there is none, and is a
// *LaneFileError if its content is invalid; the value then still shows whether the file changes
// later.
func (l *Lanes) Read(f LaneFile) (LaneValue, error) {
	info, err := l.root.Lstat(f.path())
	if err != nil {
		return LaneValue{}, err
	}
	v := LaneValue{info: info}
	if !info.Mode().IsRegular() {
		return v, &LaneFileError{f, fmt.Sprintf("it is a %s and not a file", files.KindOf(info.Mode()))}
	}
	data, err := l.readRegular(f.path(), laneFileLimit)
	switch {
	case errors.Is(err, fs.ErrPermission) && f.Control != LaneCapacity:
		v.Complete = true // the name is enough
		return v, nil
	case errors.Is(err, fs.ErrNotExist):
		return LaneValue{}, err
	case err != nil:
		if large, ok := errors.AsType[*CorruptError](err); ok {
			return v, &LaneFileError{f, large.Reason}
		}
		return v, &LaneFileError{f, "it cannot be read: " + err.Error()}
	}
	var reason string
	v.Complete = bytes.HasSuffix(data, []byte("\n"))
	if f.Control == LaneCapacity {
		v.Capacity, reason = parseCapacity(string(bytes.TrimSpace(data)))
	} else {
		v.Hold, reason = parseHold(bytes.TrimSpace(data))
	}
	if reason != "" {
		return v, &LaneFileError{f, reason}
	}
	return v, nil
}

// Hold pauses or closes a lane, or AllLanes, and replaces an earlier hold. It is durable when
// it returns.
func (l *Lanes) Hold(f LaneFile, hold LaneHold) error {
	hold.Reason, hold.By = printableReason(hold.Reason), printableReason(hold.By)
	data, err := json.Marshal(hold)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	return l.write(f, append(data, '\n'))
}

// SetCapacity sets how many operations run in a lane at once; -1 is unlimited. It is durable
// when it returns.
func (l *Lanes) SetCapacity(lane string, n int) error {
	return l.write(LaneFile{lane, LaneCapacity}, []byte(FormatLaneCapacity(n)+"\n"))
}

func (l *Lanes) write(f LaneFile, data []byte) error {
	if _, ok := ParseLaneFile(f.String()); !ok {
		return fmt.Errorf("write %s: there is no such file of a lane", f)
	}
	if err := l.files.Replace(f.path(), data, false); err != nil {
		if info, statErr := l.root.Lstat(f.path()); statErr == nil && info.IsDir() {
			return &BlockedError{f.path()}
		}
		return err
	}
	return l.syncFolder(lanesDir)
}

// Release removes a file of lanes/: the lane is resumed or opened, or returns to the configured
// capacity. It reports whether the file existed, and is durable when it returns.
func (l *Lanes) Release(f LaneFile) (bool, error) {
	err := l.root.Remove(f.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove %s/%s: %w", lanesDir, f, err)
	}
	return true, l.syncFolder(lanesDir)
}

// Expire removes an expired file of lanes/, unless it has changed since it was read as v.
func (l *OwnerLanes) Expire(f LaneFile, v LaneValue) (bool, error) {
	if !l.Unchanged(f, v) {
		return false, nil
	}
	return l.Release(f)
}

// Unchanged reports whether a file of lanes/ is still the one that was read as v.
func (l *Lanes) Unchanged(f LaneFile, v LaneValue) bool {
	info, err := l.root.Lstat(f.path())
	return err == nil && v.info != nil && sameContent(info, v.info)
}
