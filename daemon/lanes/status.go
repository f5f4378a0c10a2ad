package lanes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// Status returns the status of all lanes and limits, combining the statistics of the queue with the files.
func (l *Lanes) Status() statefs.LanesStatus {
	stats, limits := l.config.Queue.Lanes(), l.config.Queue.Limits()
	l.mu.Lock()
	defer l.mu.Unlock()
	every := l.byName[statefs.AllLanes]
	out := statefs.LanesStatus{
		Limits: limits,
		Paused: every.hold(statefs.LanePaused), Closed: every.hold(statefs.LaneClosed),
		Problems: append(every.problems(), l.strayFiles...),
	}
	now := l.config.Owner.Now()
	for i := range stats {
		out.Lanes = append(out.Lanes, l.status(&stats[i], &out, now))
	}
	return out
}

// status returns the status of one lane, combining the statistics of the queue with the lane's
// files.
func (l *Lanes) status(stats *queue.LaneStats, every *statefs.LanesStatus, now time.Time) statefs.LaneStatus {
	out := statefs.LaneStatus{
		Name: stats.Name, Known: stats.Known, Capacity: statefs.LaneCapacityOf(stats.Capacity), Running: stats.Running,
		Waiting: stats.Waiting,
		Oldest:  statefs.OptionalTime(stats.Oldest), NextStart: statefs.OptionalTime(stats.Until),
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
				Until: statefs.OptionalTime(b.Until()), Trial: b.TrialID(),
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

func (s *lane) hold(c statefs.LaneControl) *statefs.LaneHold {
	if f := s.files[c]; f.exists {
		return new(f.value.Hold)
	}
	return nil
}

func (s *lane) problems() (problems []statefs.LaneProblem) {
	for _, f := range filesOf(s.name) {
		if c := s.files[f.Control]; c.problem != "" {
			problems = append(problems, statefs.LaneProblem{File: "lanes/" + f.String(), Reason: c.problem})
		}
	}
	return problems
}

// RetryAfterClosed is when to retry at a lane that is closed without an end time.
const RetryAfterClosed = time.Minute

// Check refuses new operations; a list is refused as a whole. It returns a *submit.OptionError for
// an unknown lane or limit, and a *submit.BusyError for a closed lane.
func (l *Lanes) Check(drafts []*statefs.Record) error {
	holds := *l.holds.Load()
	for _, rec := range drafts {
		name := cmp.Or(rec.Lane, statefs.DefaultLane)
		job := rec.Group + "/" + rec.Job
		if err := l.checkNames("job "+job, name, rec.Limits); err != nil {
			return err
		}
		for i := range rec.Steps {
			step := &rec.Steps[i]
			if err := l.checkNames("step "+step.Name+" of job "+job, cmp.Or(step.Lane, name), step.Limits); err != nil {
				return err
			}
		}
		for _, at := range []string{name, statefs.AllLanes} {
			if hold, is := holds[statefs.LaneFile{Lane: at, Control: statefs.LaneClosed}]; is {
				return laneClosed(at, hold, l.config.Owner.Now())
			}
		}
	}
	return nil
}

// checkNames returns an error if the lane or one of the limits does not exist.
func (l *Lanes) checkNames(who, lane string, limits []string) error {
	if l.byName[lane] == nil || lane == statefs.AllLanes {
		return &submit.OptionError{
			Option: "lane",
			Reason: fmt.Sprintf("%s names the lane '%s', which the daemon does not have; it has %s", who, lane,
				strings.Join(l.names(), ", ")),
		}
	}
	for _, limit := range limits {
		if _, ok := l.config.Limits[limit]; !ok {
			return &submit.OptionError{
				Option: "limits",
				Reason: fmt.Sprintf("%s names the limit '%s', which the daemon does not have%s", who, limit, l.knownLimits()),
			}
		}
	}
	return nil
}

func (l *Lanes) knownLimits() string {
	names := slices.Sorted(maps.Keys(l.config.Limits))
	if len(names) == 0 {
		return "; it has none"
	}
	return "; it has " + strings.Join(names, ", ")
}

// laneClosed returns the error for a submit to a closed lane.
func laneClosed(name string, hold statefs.LaneHold, now time.Time) error {
	text, after := fmt.Sprintf("Lane '%s' is closed", name), RetryAfterClosed
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

// Pause returns why and until when a lane is paused, by its own file or by that of all lanes, whichever
// lasts longer.
func (l *Lanes) Pause(lane string) (hold statefs.LaneHold, is bool) {
	holds := *l.holds.Load()
	hold, is = holds[pausedFile(lane)]
	if all, every := holds[pausedFile(statefs.AllLanes)]; every &&
		(!is || hold.Until != nil && (all.Until == nil || all.Until.After(*hold.Until))) {
		return all, true
	}
	return hold, is
}
