package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// LanesStatus returns the status of all lanes and limits.
func (d *Daemon) LanesStatus() statefs.LanesStatus {
	stats, limits := d.Lanes(), d.Limits()
	l := d.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	every := l.byName[statefs.AllLanes]
	out := statefs.LanesStatus{
		Limits: []statefs.LimitStatus{},
		Paused: every.hold(statefs.LanePaused), Closed: every.hold(statefs.LaneClosed),
		Problems: append(every.problems(), l.strayFiles...),
	}
	for _, limit := range limits {
		out.Limits = append(out.Limits, statefs.LimitStatus{
			Name: limit.Name, Known: limit.Known,
			Capacity: statefs.LaneCapacityOf(limit.Capacity), Running: limit.Running,
		})
	}
	now := l.owner.Now()
	for i := range stats {
		out.Lanes = append(out.Lanes, l.status(&stats[i], &out, now))
	}
	return out
}

// status returns the status of one lane, combining the statistics of the queue with the lane's
// files.
func (l *lanes) status(stats *queue.LaneStats, every *statefs.LanesStatus, now time.Time) statefs.LaneStatus {
	out := statefs.LaneStatus{
		Name: stats.Name, Known: stats.Known, Capacity: statefs.LaneCapacityOf(stats.Capacity), Running: stats.Running,
		Waiting: stats.Waiting,
		Oldest:  timeOrNil(stats.Oldest), NextStart: timeOrNil(stats.Until),
		PausedByAll: every.Paused != nil, ClosedByAll: every.Closed != nil,
	}
	if stats.Starts > 0 {
		out.MaxStarts = fmt.Sprintf("%d/%s", stats.Starts, param.FormatDuration(stats.Per))
	}
	if stats.Gap > 0 {
		out.Gap = param.FormatDuration(stats.Gap)
	}
	if s := l.byName[stats.Name]; s != nil {
		out.Configured, out.Problems = statefs.LaneCapacityOf(s.config.Capacity), s.problems()
		out.Paused, out.Closed = s.hold(statefs.LanePaused), s.hold(statefs.LaneClosed)
		if b := s.breaker; b != nil {
			out.Breaker = &statefs.BreakerStatus{
				State: string(b.State()), Failures: b.Failures(now),
				Until: timeOrNil(b.Until()), Trial: b.TrialID(),
			}
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

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// ReconcileLanes reads the files of lanes/ now. A request that has just changed one calls it: when
// it returns, nothing starts that the files do not allow.
func (d *Daemon) ReconcileLanes() {
	d.lanes.reconcile()
	d.admission.awaitStarts()
}

func (s *lane) hold(c statefs.LaneControl) *statefs.LaneHold {
	if f := s.files[c]; f.exists {
		hold := f.value.Hold
		return &hold
	}
	return nil
}

func (s *lane) problems() (problems []statefs.LaneProblem) {
	for _, f := range laneFilesOf(s.name) {
		if c := s.files[f.Control]; c.problem != "" {
			problems = append(problems, statefs.LaneProblem{File: "lanes/" + f.String(), Reason: c.problem})
		}
	}
	return problems
}

// retryAfterClosed is when to retry at a lane that is closed without an end time.
const retryAfterClosed = time.Minute

// retryAfterFull is when to retry after the queue was full.
const retryAfterFull = 5 * time.Second

// Admit refuses new operations; a list is refused as a whole. It returns a *submit.OptionError for
// an unknown lane or limit, and a *submit.BusyError for a closed lane or a full queue.
func (d *Daemon) Admit(all []statefs.Submission) error {
	closed := *d.lanes.closed.Load()
	for i := range all {
		s := &all[i]
		name := s.Lane
		if name == "" {
			name = DefaultLane
		}
		job := s.Group + "/" + s.Job
		if err := d.checkNames("job "+job, name, s.Limits); err != nil {
			return err
		}
		for i := range s.Steps {
			step := &s.Steps[i]
			if err := d.checkNames("step "+step.Name+" of job "+job, cmp.Or(step.Lane, name), step.Limits); err != nil {
				return err
			}
		}
		for _, at := range []string{name, statefs.AllLanes} {
			if hold, is := closed[at]; is {
				return laneClosed(at, hold, d.owner.Now())
			}
		}
	}
	if waiting, ok := d.queueQuota.reserve(len(all), d.config.MaxQueued, d.uptime()); !ok {
		text := fmt.Sprintf("The queue is full: %d operations wait, and max_queued is %d", waiting, d.config.MaxQueued)
		if len(all) > 1 {
			text += fmt.Sprintf("; these would be %d more", len(all))
		}
		return &submit.BusyError{Text: text, Full: true, RetryAfter: retryAfterFull}
	}
	return nil
}

// checkNames returns an error if the lane or one of the limits does not exist.
func (d *Daemon) checkNames(who, lane string, limits []string) error {
	if d.lanes.byName[lane] == nil || lane == statefs.AllLanes {
		return &submit.OptionError{
			Option: "lane",
			Reason: fmt.Sprintf("%s names the lane '%s', which the daemon does not have; it has %s", who, lane,
				strings.Join(d.lanes.names(), ", ")),
		}
	}
	for _, limit := range limits {
		if _, ok := d.config.Limits[limit]; !ok {
			return &submit.OptionError{
				Option: "limits",
				Reason: fmt.Sprintf("%s names the limit '%s', which the daemon does not have%s", who, limit, d.knownLimits()),
			}
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

// laneClosed returns the error for a submit to a closed lane.
func laneClosed(name string, hold statefs.LaneHold, now time.Time) error {
	text, after := fmt.Sprintf("Lane '%s' is closed", name), retryAfterClosed
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
	return &submit.BusyError{Text: text, RetryAfter: after}
}
