package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// LanesStatus returns how all lanes and limits stand.
func (d *Daemon) LanesStatus() statefs.LanesStatus {
	stats, limits := d.Lanes(), d.Limits()
	l := d.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	every := l.all[statefs.AllLanes]
	out := statefs.LanesStatus{
		Limits: []statefs.LimitStatus{},
		Paused: every.hold(statefs.LanePaused), Closed: every.hold(statefs.LaneClosed),
		Problems: append(every.problems(), l.odd...),
	}
	for _, limit := range limits {
		out.Limits = append(out.Limits, statefs.LimitStatus{Name: limit.Name, Known: limit.Known, Capacity: statefs.LaneCapacityOf(limit.Capacity), Running: limit.Running})
	}
	now := l.owner.Now()
	for i := range stats {
		out.Lanes = append(out.Lanes, l.status(&stats[i], &out, now))
	}
	return out
}

// status says how one lane stands, of which the queue knows a part.
func (l *lanes) status(stats *queue.LaneStats, every *statefs.LanesStatus, now time.Time) statefs.LaneStatus {
	out := statefs.LaneStatus{
		Name: stats.Name, Known: stats.Known, Capacity: statefs.LaneCapacityOf(stats.Capacity), Running: stats.Running, Waiting: stats.Waiting,
		Oldest: unlessZero(stats.Oldest), NextStart: unlessZero(stats.Until),
		PausedByAll: every.Paused != nil, ClosedByAll: every.Closed != nil,
	}
	if stats.Starts > 0 {
		out.MaxStarts = fmt.Sprintf("%d/%s", stats.Starts, shortDuration(stats.Per))
	}
	if stats.Gap > 0 {
		out.Gap = shortDuration(stats.Gap)
	}
	if s := l.all[stats.Name]; s != nil {
		out.Configured, out.Problems = statefs.LaneCapacityOf(s.config.Capacity), s.problems()
		out.Paused, out.Closed = s.hold(statefs.LanePaused), s.hold(statefs.LaneClosed)
		if b := s.breaker; b != nil {
			out.Breaker = &statefs.BreakerStatus{State: string(b.State()), Failures: b.Failures(now), Until: unlessZero(b.Until()), Trial: b.TrialID()}
		}
	}
	if out.Paused == nil {
		out.Paused = every.Paused
	}
	if out.Closed == nil {
		out.Closed = every.Closed
	}
	return out
}

func unlessZero(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// LookAtLanes reads the files of lanes/ now, for somebody who has just changed one and is to see the effect.
func (d *Daemon) LookAtLanes() { d.lanes.look() }

func (s *lane) hold(c statefs.LaneControl) *statefs.LaneHold {
	if f := s.files[c]; f.there {
		hold := f.value.Hold
		return &hold
	}
	return nil
}

func (s *lane) problems() (problems []statefs.LaneProblem) {
	for _, f := range laneFilesOf(s.name) {
		if c := s.files[f.Control]; c.bad != "" {
			problems = append(problems, statefs.LaneProblem{File: "lanes/" + f.String(), Reason: c.bad})
		}
	}
	return problems
}

// whenClosed is when to ask again at a lane that is closed for nobody knows how long.
const whenClosed = time.Minute

// whenFull is when to ask again where too much waits.
const whenFull = 5 * time.Second

// Admit refuses new operations, all of one list at once: those of a lane or a limit that there is not (*submit.OptionError), those of a
// closed lane, and all when too many wait already (*submit.BusyError).
func (d *Daemon) Admit(all []statefs.Submission) error {
	closed := *d.lanes.closed.Load()
	for i := range all {
		s := &all[i]
		name := s.Lane
		if name == "" {
			name = DefaultLane
		}
		job := s.Group + "/" + s.Job
		if err := d.knows("job "+job, name, s.Limits); err != nil {
			return err
		}
		for i := range s.Steps {
			step := &s.Steps[i]
			if err := d.knows("step "+step.Name+" of job "+job, cmp.Or(step.Lane, name), step.Limits); err != nil {
				return err
			}
		}
		for _, at := range []string{name, statefs.AllLanes} {
			if hold, is := closed[at]; is {
				return laneClosed(at, hold, d.owner.Now())
			}
		}
	}
	if waiting, ok := d.room.take(len(all), d.config.MaxQueued, d.ran()); !ok {
		text := fmt.Sprintf("The queue is full: %d operations wait, and max_queued is %d", waiting, d.config.MaxQueued)
		if len(all) > 1 {
			text += fmt.Sprintf("; these would be %d more", len(all))
		}
		return &submit.BusyError{Text: text, Full: true, After: whenFull}
	}
	return nil
}

// knows refuses what names a lane or a limit that there is not.
func (d *Daemon) knows(who, lane string, limits []string) error {
	if d.lanes.all[lane] == nil || lane == statefs.AllLanes {
		return &submit.OptionError{Option: "lane", Reason: fmt.Sprintf("%s names the lane '%s', which the daemon does not have; it has %s", who, lane, strings.Join(d.lanes.names(), ", "))}
	}
	for _, limit := range limits {
		if _, ok := d.config.Limits[limit]; !ok {
			return &submit.OptionError{Option: "limits", Reason: fmt.Sprintf("%s names the limit '%s', which the daemon does not have%s", who, limit, d.knownLimits())}
		}
	}
	return nil
}

func (d *Daemon) knownLimits() string {
	var names []string
	for name := range d.config.Limits {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return "; it has none"
	}
	return "; it has " + strings.Join(names, ", ")
}

// laneClosed says that a lane takes nothing.
func laneClosed(name string, hold statefs.LaneHold, now time.Time) error {
	text, after := fmt.Sprintf("Lane '%s' is closed", name), whenClosed
	if name == statefs.AllLanes {
		text = "All lanes are closed"
	}
	if hold.Until != nil {
		after = max(hold.Until.Sub(now), time.Second)
		text += " until " + hold.Until.Local().Format(time.RFC3339)
	}
	if hold.Reason != "" {
		text += ": " + hold.Reason
	}
	return &submit.BusyError{Text: text, After: after}
}
