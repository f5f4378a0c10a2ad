package statefs

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// LaneTimesKind is a kind of file of lanes/ in which the daemon keeps times for its successor. It
// controls nothing.
type LaneTimesKind string

// The values of LaneTimesKind.
const (
	// LaneStarts are the last starts of a lane with a rate limit.
	LaneStarts LaneTimesKind = ".starts"
	// LaneFailures are the failures that the lane's breaker counts while it is closed.
	LaneFailures LaneTimesKind = ".failures"
)

// MaxLaneTimes is how many times a file holds; only the newest ones are kept.
const MaxLaneTimes = 4096

// laneTimesLimit bounds how much of such a file is read, in bytes; no time is longer than 40.
const laneTimesLimit = 40 * MaxLaneTimes

// isLaneTimes reports whether a name in lanes/ is that of a file for the daemon's own use.
func isLaneTimes(name string) bool {
	return strings.HasSuffix(name, rotationSuffix) || strings.HasSuffix(name, string(LaneStarts)) ||
		strings.HasSuffix(name, string(LaneFailures))
}

// Times returns the times in such a file, in the order in which they were written. Unreadable
// content is skipped: if the file is lost, the daemon only forgets these times.
func (l *Lanes) Times(lane string, note LaneTimesKind) []time.Time {
	data, err := l.readRegular(path.Join(lanesDir, lane+string(note)), laneTimesLimit)
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

// SetTimes replaces the times; without any it removes the file. It does not sync: after a power
// cut an older file may exist, or none.
func (l *OwnerLanes) SetTimes(lane string, note LaneTimesKind, times []time.Time) error {
	name := path.Join(lanesDir, lane+string(note))
	if len(times) == 0 {
		if err := l.root.Remove(name); err != nil && !files.IsMissing(err) {
			return fmt.Errorf("forget the times of a lane: %w", err)
		}
		return nil
	}
	times = times[max(0, len(times)-MaxLaneTimes):]
	data := make([]byte, 0, 40*len(times))
	for _, at := range times {
		data = append(at.AppendFormat(data, time.RFC3339Nano), '\n')
	}
	return l.files.ReplaceUnsynced(name, data)
}
