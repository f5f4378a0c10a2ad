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

// LanesDir returns the absolute path of lanes/.
func (t *Tree) LanesDir() string { return filepath.Join(t.dir, lanesDir) }

// LaneFiles lists the files of lanes/ that control something, and the stray names that look as if
// they should.
func (t *Tree) LaneFiles() (files []LaneFile, odd []string, err error) {
	entries, err := t.readFolder(lanesDir)
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

// ReadLane reads a file of lanes/. The error wraps fs.ErrNotExist if there is none, and is a
// *LaneFileError if its content is invalid; the value then still shows whether the file changes
// later.
func (t *Tree) ReadLane(f LaneFile) (LaneValue, error) {
	info, err := t.root.Lstat(f.path())
	if err != nil {
		return LaneValue{}, err
	}
	v := LaneValue{info: info}
	if !info.Mode().IsRegular() {
		return v, &LaneFileError{f, fmt.Sprintf("it is a %s and not a file", files.KindOf(info.Mode()))}
	}
	data, err := t.readRegular(f.path(), laneFileLimit)
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

// HoldLane pauses or closes a lane, or AllLanes, and replaces an earlier hold. It is durable when
// it returns.
func (t *Tree) HoldLane(f LaneFile, hold LaneHold) error {
	hold.Reason, hold.By = printableReason(hold.Reason), printableReason(hold.By)
	data, err := json.Marshal(hold)
	if err != nil {
		return fmt.Errorf("write %s: %w", f, err)
	}
	return t.writeLane(f, append(data, '\n'))
}

// SetLaneCapacity sets how many operations run in a lane at once; -1 is unlimited. It is durable
// when it returns.
func (t *Tree) SetLaneCapacity(lane string, n int) error {
	return t.writeLane(LaneFile{lane, LaneCapacity}, []byte(FormatLaneCapacity(n)+"\n"))
}

func (t *Tree) writeLane(f LaneFile, data []byte) error {
	if _, ok := ParseLaneFile(f.String()); !ok {
		return fmt.Errorf("write %s: there is no such file of a lane", f)
	}
	if err := t.files.Replace(f.path(), data, false); err != nil {
		if info, statErr := t.root.Lstat(f.path()); statErr == nil && info.IsDir() {
			return &BlockedError{f.path()}
		}
		return err
	}
	return t.syncFolder(lanesDir)
}

// ReleaseLane removes a file of lanes/: the lane is resumed or opened, or returns to the configured
// capacity. It reports whether the file existed, and is durable when it returns.
func (t *Tree) ReleaseLane(f LaneFile) (bool, error) {
	err := t.root.Remove(f.path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove %s/%s: %w", lanesDir, f, err)
	}
	return true, t.syncFolder(lanesDir)
}

// ExpireLane removes an expired file of lanes/, unless it has changed since it was read as v.
func (o *Owner) ExpireLane(f LaneFile, v LaneValue) (bool, error) {
	if !o.LaneUnchanged(f, v) {
		return false, nil
	}
	return o.ReleaseLane(f)
}

// LaneUnchanged reports whether a file of lanes/ is still the one that was read as v.
func (t *Tree) LaneUnchanged(f LaneFile, v LaneValue) bool {
	info, err := t.root.Lstat(f.path())
	return err == nil && v.info != nil && sameContent(info, v.info)
}
