package lanes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// file holds what is known of one file in lanes/.
type file struct {
	exists  bool
	value   statefs.LaneValue // the value in effect
	problem string            // what is wrong with the file now
	// lastRead and unchangedSince are for a file that may still be being written: its last value,
	// and the daemon's uptime when that value was first read.
	lastRead       statefs.LaneValue
	unchangedSince time.Duration
}

// readFile reads one file of a lane and updates c.
func (l *Lanes) readFile(f statefs.LaneFile, c *file, now time.Time) {
	v, err := l.config.Owner.Lanes.Read(f)
	if errors.Is(err, fs.ErrNotExist) {
		*c = file{}
		l.alarms.Set(f, time.Time{}, 0)
		return
	}
	bad, isBad := errors.AsType[*statefs.LaneFileError](err)
	if err != nil && !isBad {
		l.config.Logger.Error("lane file cannot be read; its previous content counts", "file",
			"lanes/"+f.String(), "error", err)
		return
	}
	if c.value.Same(v) && c.problem == "" && !isBad {
		l.expire(f, c, now)
		return
	}
	pauses := f.Control != statefs.LaneCapacity && v.Regular() && !c.exists
	if pauses {
		c.exists, c.value = true, statefs.LaneValue{} // holds at once, whatever the file will contain
	}
	if isBad || !v.Complete {
		if !c.lastRead.Same(v) {
			c.lastRead, c.unchangedSince = v, l.config.Uptime()
		}
		if rest := c.unchangedSince + statefs.QuietPeriod - l.config.Uptime(); rest > 0 {
			l.alarms.Set(f, time.Time{}, c.unchangedSince+statefs.QuietPeriod)
			return
		}
	}
	switch {
	case !isBad:
		c.exists, c.value, c.problem = true, v, ""
	case bad.Reason != c.problem:
		l.config.Logger.Warn("lane file is not valid; its previous content counts", "file", "lanes/"+f.String(),
			"reason", bad.Reason)
		c.problem = bad.Reason
	}
	l.expire(f, c, now)
}

// expire removes a file whose time is over, and otherwise sets the alarm for its end. The pause of
// a breaker stays: the breaker decides what follows.
func (l *Lanes) expire(f statefs.LaneFile, c *file, now time.Time) {
	until := c.value.Hold.Until
	if until != nil && until.After(now) {
		l.alarms.Set(f, *until, 0)
		return
	}
	l.alarms.Set(f, time.Time{}, 0)
	if until == nil || l.byName[f.Lane].isBreakerPause(c.value.Hold) && f.Control == statefs.LanePaused {
		return
	}
	gone, err := l.config.Owner.Lanes.Expire(f, c.value)
	switch {
	case err != nil:
		l.config.Logger.Error("expired lane file cannot be removed; it no longer counts", "file",
			"lanes/"+f.String(), "error", err)
		c.exists = false
	case gone:
		*c = file{}
	case c.problem != "":
		c.value = statefs.LaneValue{} // the file is invalid now: it holds without an end
	default:
		l.reconcileSoon() // the file has just been changed
	}
}

// isBreakerPause reports whether a pause was made by the lane's breaker.
func (s *lane) isBreakerPause(hold statefs.LaneHold) bool {
	return s.breaker != nil && hold.By == statefs.HeldByBreaker && hold.Until != nil
}

// logStrayFiles logs the files in lanes/ that control nothing.
func (l *Lanes) logStrayFiles() {
	files, odd, err := l.config.Owner.Lanes.List()
	if err != nil {
		l.config.Logger.Error("lanes/ cannot be listed", "error", err)
		return
	}
	var problems []statefs.LaneProblem
	for _, f := range files {
		if l.byName[f.Lane] == nil {
			problems = append(problems, statefs.LaneProblem{
				File:   "lanes/" + f.String(),
				Reason: fmt.Sprintf("there is no lane %q; the lanes are %s", f.Lane, strings.Join(l.names(), ", ")),
			})
		}
	}
	for _, name := range odd {
		problems = append(problems, statefs.LaneProblem{
			File:   "lanes/" + stream.Printable(name),
			Reason: "its name is not LANE.paused, LANE.closed or LANE.capacity",
		})
	}
	slices.SortFunc(problems, func(a, b statefs.LaneProblem) int { return cmp.Compare(a.File, b.File) })
	for _, p := range problems {
		if !slices.Contains(l.strayFiles, p) {
			l.config.Logger.Warn("unknown file in lanes/", "file", p.File, "reason", p.Reason)
		}
	}
	l.strayFiles = problems
}

// watchedFile parses a file name for the watch of lanes/. Stray files are watched too, because
// they are logged.
func watchedFile(name string) (statefs.LaneFile, bool) {
	f, ok := statefs.ParseLaneFile(name)
	return f, ok || statefs.StrayLaneFile(name)
}
