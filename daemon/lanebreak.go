package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/breaker"
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// What a breaker decides stands in lanes/NAME.paused, so that it outlives the daemon and a person can undo it. The failures that it has
// counted so far stand in lanes/NAME.failures, which nobody but the next daemon reads.

// verdict is what the end of a run says of its lane.
type verdict uint8

const (
	saysNothing verdict = iota // somebody cancelled it, or its failure counts as none
	saysWell
	saysFailed
)

// tellBreaker tells the breaker of its lane how the run of an operation has ended.
func (d *Daemon) tellBreaker(op *operation) {
	v, names, exit := saysNothing, []string(nil), ""
	switch {
	case op.endedBy == statefs.CauseDone:
		v = saysWell
	case op.rec.Error != nil && op.run.class != catalog.ClassWarn:
		v, names = saysFailed, []string{op.rec.Error.Code, string(op.run.class)}
		if op.rec.ExitCode != nil && *op.rec.ExitCode != 0 {
			exit = strconv.Itoa(*op.rec.ExitCode)
			names = append(names, exit)
		}
	}
	d.lanes.ended(laneOf(op.rec), op.id(), v, exit, names...)
}

// ended tells the breaker of a lane how a run has ended, before the run gives its place back. A failure has several names: its error code, its
// class, the exit code of its command; the one that the breaker names counts. exit is that code as text, "" when there is none, for people.
func (l *lanes) ended(name string, id statefs.ID, v verdict, exit string, names ...string) {
	s := l.all[name] // the map never changes
	if s == nil || s.breaker == nil {
		return
	}
	code := ""
	if len(names) > 0 {
		code = names[0]
	}
	if i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(s.config.Breaker.On, n) }); i >= 0 {
		code = names[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.owner.Now()
	l.begun(s)
	if p := s.files[statefs.LanePaused]; p.there && !s.breaks(p.value.Hold) {
		return // somebody else has paused the lane, and it goes on when he says so
	}
	switch b := s.breaker; {
	case v == saysFailed && b.Failed(id, code, now):
		until := b.Until()
		l.holdByBreaker(s, statefs.LaneHold{
			Until:  &until,
			Reason: fmt.Sprintf("%s; the last one: %s in %s", failuresIn(s.config.Breaker), withExit(code, exit), id),
		}, now)
	case v == saysWell && b.Succeeded(id):
		s.written = false
		if _, err := l.owner.ReleaseLane(pausedFile(name)); err != nil {
			l.logger.Error("the pause of a breaker cannot be removed; remove the file", "file", "lanes/"+pausedFile(name).String(), "error", err)
		}
		l.read(pausedFile(name), s.files[statefs.LanePaused], now)
	case v == saysNothing && b.Left(id), v == saysFailed && b.State() == breaker.Trial && b.TrialID() == (statefs.ID{}):
		l.noteTrial(s, now)
	}
	l.noteFailures(s)
	l.apply(now)
}

// noteFailures writes down which failures count, when they are others than before.
func (l *lanes) noteFailures(s *lane) {
	if counted := s.breaker.Counted(); !slices.EqualFunc(counted, s.noted, time.Time.Equal) {
		s.noted = counted
		if err := l.owner.SetLaneTimes(s.name, statefs.LaneFailures, counted); err != nil {
			l.logger.Warn("the failures of a lane cannot be written down; a restart forgets them", "lane", s.name, "error", err)
		}
	}
}

// withExit adds the exit code of a command to the name of its failure, unless that is the name.
func withExit(name, exit string) string {
	if exit == "" || name == exit {
		return name
	}
	return name + " (exit code " + exit + ")"
}

func failuresIn(c *BreakerConfig) string {
	if c.Failures == 1 {
		return "a failure"
	}
	return fmt.Sprintf("%d failures within %s", c.Failures, shortDuration(c.Within))
}

func pausedFile(name string) statefs.LaneFile {
	return statefs.LaneFile{Lane: name, Control: statefs.LanePaused}
}

// holdByBreaker writes down that the breaker pauses the lane. When that fails the lane is paused all the same, and it is tried again.
func (l *lanes) holdByBreaker(s *lane, hold statefs.LaneHold, now time.Time) {
	hold.By, hold.Trial = statefs.HeldByBreaker, s.breaker.TrialID()
	if err := l.owner.HoldLane(pausedFile(s.name), hold); err != nil {
		s.written = false
		l.logger.Error("the pause of a breaker cannot be written down", "lane", s.name, "error", err)
		return
	}
	s.written = true
	l.read(pausedFile(s.name), s.files[statefs.LanePaused], now)
}

// noteTrial writes down who was let through, or that nobody is any more.
func (l *lanes) noteTrial(s *lane, now time.Time) {
	value := s.files[statefs.LanePaused].value
	if value.Hold.Until == nil {
		return // nothing was written down yet
	}
	if !l.owner.LaneUnchanged(pausedFile(s.name), value) {
		l.want() // somebody has removed or changed it just now, which counts
		return
	}
	l.holdByBreaker(s, value.Hold, now)
}

// begun tells the breaker of the operation that the queue has let through.
func (l *lanes) begun(s *lane) {
	id, ok := l.admission.letThrough(s.name)
	if !ok {
		return
	}
	s.said.set.Paused, s.said.one = true, false // the queue has done so by itself
	if s.breaker.Began(id) {
		l.logger.Info("a lane tries one operation", "lane", s.name, "id", id)
		l.noteTrial(s, l.owner.Now())
	}
}

// heed brings the breaker of a lane in line with its file and with the time.
func (l *lanes) heed(s *lane, now time.Time) {
	b := s.breaker
	if b == nil {
		return
	}
	defer l.noteFailures(s)
	l.begun(s)
	p := s.files[statefs.LanePaused]
	hold := p.value.Hold
	switch {
	case !p.there && b.State() == breaker.Closed:
		return
	case !p.there && s.written:
		l.logger.Info("somebody has resumed a lane that its breaker had paused", "lane", s.name)
		b.Reset()
		s.written = false
		return
	case !p.there:
		until := now
		if !b.Until().IsZero() {
			until = b.Until()
		}
		l.holdByBreaker(s, statefs.LaneHold{Until: &until, Reason: failuresIn(s.config.Breaker)}, now)
	case !s.breaks(hold):
		b.Reset()
		s.written = false
		return
	case b.State() == breaker.Closed, b.State() == breaker.Open && !b.Until().Equal(*hold.Until):
		b.Restore(*hold.Until, hold.Trial) // of an earlier daemon, or changed by hand
		s.written = true
	}
	if b.Pass(now) {
		l.logger.Info("the cooldown of a lane is over: one operation is let through", "lane", s.name)
	}
	if id := b.TrialID(); id != (statefs.ID{}) && l.admission.lost(id) && b.Left(id) {
		l.noteTrial(s, now)
	}
}
