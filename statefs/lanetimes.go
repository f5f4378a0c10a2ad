package statefs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
)

// LaneNote is a file of lanes/ in which the daemon notes times for the next one. It controls nothing.
type LaneNote string

// The notes of a lane.
const (
	// LaneStarts are the last starts of a lane that may start only so often.
	LaneStarts LaneNote = ".starts"
	// LaneFailures are the failures that its breaker counts while it is closed.
	LaneFailures LaneNote = ".failures"
)

// MostLaneTimes is how many times a note holds; of more the last ones are kept.
const MostLaneTimes = 4096

// laneTimesLimit bounds what is read of a note, in bytes; no time is longer than 40.
const laneTimesLimit = 40 * MostLaneTimes

// isNote reports whether a name in lanes/ is that of a file which the daemon keeps for itself.
func isNote(name string) bool {
	return strings.HasSuffix(name, rotationSuffix) || strings.HasSuffix(name, string(LaneStarts)) || strings.HasSuffix(name, string(LaneFailures))
}

// LaneTimes returns the times of a note, in the order in which they were noted. What cannot be read is passed over: a note that is lost
// makes the daemon forget, and no more.
func (t *Tree) LaneTimes(lane string, note LaneNote) []time.Time {
	data, err := t.readRegular(t.root, path.Join(lanesDir, lane+string(note)), laneTimesLimit)
	if err != nil {
		return nil
	}
	var times []time.Time
	for line := range bytes.Lines(data) {
		if at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(line))); err == nil {
			times = append(times, at)
		}
	}
	return times
}

// SetLaneTimes replaces a note; without times it is removed. It is not synced: after a power cut there may be an older one, or none.
func (o *Owner) SetLaneTimes(lane string, note LaneNote, times []time.Time) error {
	name := path.Join(lanesDir, lane+string(note))
	if len(times) == 0 {
		if err := o.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the times of a lane: %w", err)
		}
		return nil
	}
	times = times[max(0, len(times)-MostLaneTimes):]
	data := make([]byte, 0, 40*len(times))
	for _, at := range times {
		data = append(at.AppendFormat(data, time.RFC3339Nano), '\n')
	}
	return o.files.replaceUnsynced(name, data)
}
