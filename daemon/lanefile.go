package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// laneFile is what is known of one file.
type laneFile struct {
	there bool
	value statefs.LaneValue // what counts
	bad   string            // what is wrong with the file as it is now
	// seen and since are for a file that somebody may be writing: what was read last, and since when it is so by how long the daemon has run.
	seen  statefs.LaneValue
	since time.Duration
}

// read looks at one file.
func (l *lanes) read(f statefs.LaneFile, c *laneFile, now time.Time) {
	v, err := l.owner.ReadLane(f)
	if errors.Is(err, fs.ErrNotExist) {
		*c = laneFile{}
		l.alarms.set(f, time.Time{}, 0)
		return
	}
	bad, isBad := errors.AsType[*statefs.LaneFileError](err)
	if err != nil && !isBad {
		l.logger.Error("a file of a lane cannot be looked at; what it said before counts", "file", "lanes/"+f.String(), "error", err)
		return
	}
	if c.value.Same(v) && c.bad == "" && !isBad {
		l.expire(f, c, now)
		return
	}
	pauses := f.Control != statefs.LaneCapacity && v.Regular() && !c.there
	if pauses {
		c.there, c.value = true, statefs.LaneValue{} // at once, whatever it will say
	}
	if isBad || !v.Whole {
		if !c.seen.Same(v) {
			c.seen, c.since = v, l.ran()
		}
		if rest := c.since + quiet - l.ran(); rest > 0 {
			l.alarms.set(f, time.Time{}, c.since+quiet)
			return
		}
	}
	switch {
	case !isBad:
		c.there, c.value, c.bad = true, v, ""
	case bad.Reason != c.bad:
		l.logger.Warn("a file of a lane means nothing; what it said before counts", "file", "lanes/"+f.String(), "reason", bad.Reason)
		c.bad = bad.Reason
	}
	l.expire(f, c, now)
}

// expire removes a file whose time is over, and sets the alarm for the others. That of a breaker stays: it is the breaker's turn then.
func (l *lanes) expire(f statefs.LaneFile, c *laneFile, now time.Time) {
	until := c.value.Hold.Until
	switch {
	case until == nil:
		l.alarms.set(f, time.Time{}, 0)
		return
	case until.After(now):
		l.alarms.set(f, *until, 0)
		return
	case l.all[f.Lane].breaks(c.value.Hold) && f.Control == statefs.LanePaused:
		l.alarms.set(f, time.Time{}, 0)
		return
	}
	l.alarms.set(f, time.Time{}, 0)
	gone, err := l.owner.ExpireLane(f, c.value)
	switch {
	case err != nil:
		l.logger.Error("a file of a lane whose time is over cannot be removed; it counts no longer", "file", "lanes/"+f.String(), "error", err)
		c.there = false
	case gone:
		*c = laneFile{}
	case c.bad != "":
		c.value = statefs.LaneValue{} // what is there now means nothing, and pauses or closes without an end
	default:
		l.want() // somebody has changed it just now
	}
}

// breaks says that a pause is one of the lane's breaker.
func (s *lane) breaks(hold statefs.LaneHold) bool {
	return s.breaker != nil && hold.By == statefs.HeldByBreaker && hold.Until != nil
}

// findOdd notes the files that look as if they controlled something and do not.
func (l *lanes) findOdd() {
	files, odd, err := l.owner.LaneFiles()
	if err != nil {
		l.logger.Error("lanes/ cannot be listed", "error", err)
		return
	}
	var problems []statefs.LaneProblem
	for _, f := range files {
		if l.all[f.Lane] == nil {
			problems = append(problems, statefs.LaneProblem{File: "lanes/" + f.String(), Reason: fmt.Sprintf("there is no lane %q; the lanes are %s", f.Lane, strings.Join(l.names(), ", "))})
		}
	}
	for _, name := range odd {
		problems = append(problems, statefs.LaneProblem{File: "lanes/" + printable(name), Reason: "its name controls nothing: it is LANE.paused, LANE.closed or LANE.capacity"})
	}
	slices.SortFunc(problems, func(a, b statefs.LaneProblem) int { return cmp.Compare(a.File, b.File) })
	for _, p := range problems {
		if !slices.Contains(l.odd, p) {
			l.logger.Warn("a file of lanes/ controls nothing", "file", p.File, "reason", p.Reason)
		}
	}
	l.odd = problems
}
