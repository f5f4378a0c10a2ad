package lanes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/statefs"
)

// A breaker keeps its decision in lanes/NAME.paused, so that it outlives the daemon and a person
// can undo it. It keeps the failures counted so far in lanes/NAME.failures, which only the next
// daemon reads.

// Verdict is what the end of a run means for the breaker of its lane.
type Verdict uint8

// The verdicts.
const (
	NoVerdict Verdict = iota // cancelled, or a failure that does not count
	Success
	Failure
)

// RunEnded reports the end of a run to the breaker of a lane, before the run releases its slot. A
// failure has several names: its error code, its class, the exit code of its command. The name that
// the breaker's configuration lists counts, and else the error code. exit is the exit code as text
// for the reason shown to people, "" if there is none.
func (l *Lanes) RunEnded(name string, id statefs.ID, v Verdict, exit string, names ...string) {
	s := l.byName[name] // the map never changes
	if s == nil || s.breaker == nil {
		return
	}
	code := ""
	if len(names) > 0 {
		code = names[0]
	}
	if i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(s.config.Breaker.Codes, n) }); i >= 0 {
		code = names[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.config.Owner.Now()
	l.noteTrialBegun(s)
	if p := s.files[statefs.LanePaused]; p.exists && !s.isBreakerPause(p.value.Hold) {
		return // paused by someone else, who also decides when to resume it
	}
	switch b := s.breaker; {
	case v == Failure && b.Failed(id, code, now):
		l.pauseByBreaker(s, statefs.LaneHold{
			Until:  new(b.Until()),
			Reason: fmt.Sprintf("%s; the last one: %s in %s", failuresIn(s.config.Breaker), withExit(code, exit), id),
		}, now)
	case v == Success && b.Succeeded(id):
		s.pauseWritten = false
		if _, err := l.config.Owner.Lanes.Release(pausedFile(name)); err != nil {
			l.config.Logger.Error("the pause of a breaker cannot be removed; remove the file", "file",
				"lanes/"+pausedFile(name).String(), "error", err)
		}
		l.readFile(pausedFile(name), s.files[statefs.LanePaused], now)
	case v == NoVerdict && b.Inconclusive(id), v == Failure && b.State() == breaker.Trial &&
		b.TrialID() == (statefs.ID{}):
		l.saveTrial(s, now)
	}
	l.saveFailures(s)
	l.apply(now)
}

// saveFailures persists the failures that count, if they have changed.
func (l *Lanes) saveFailures(s *lane) {
	if counted := s.breaker.CountedFailures(); !slices.EqualFunc(counted, s.savedFailures, time.Time.Equal) {
		s.savedFailures = counted
		if err := l.config.Owner.Lanes.SetTimes(s.name, statefs.LaneFailures, counted); err != nil {
			l.config.Logger.Warn("failures of a lane not recorded; a restart forgets them", "lane", s.name, "error", err)
		}
	}
}

// withExit appends the exit code of a command to the name of its failure, unless the name is that
// code.
func withExit(name, exit string) string {
	if exit == "" || name == exit {
		return name
	}
	return name + " (exit code " + exit + ")"
}

func failuresIn(c *breaker.Settings) string {
	if c.Failures == 1 {
		return "a failure"
	}
	return fmt.Sprintf("%d failures within %s", c.Failures, param.FormatDuration(c.Within))
}

func pausedFile(name string) statefs.LaneFile {
	return statefs.LaneFile{Lane: name, Control: statefs.LanePaused}
}

// pauseByBreaker writes the pause of a lane by its breaker. If the write fails, the lane is paused
// all the same and the write is retried.
func (l *Lanes) pauseByBreaker(s *lane, hold statefs.LaneHold, now time.Time) {
	hold.By, hold.Trial = statefs.HeldByBreaker, s.breaker.TrialID()
	if err := l.config.Owner.Lanes.Hold(pausedFile(s.name), hold); err != nil {
		s.pauseWritten = false
		l.config.Logger.Error("pause by a breaker not recorded", "lane", s.name, "error", err)
		return
	}
	s.pauseWritten = true
	l.readFile(pausedFile(s.name), s.files[statefs.LanePaused], now)
}

// saveTrial writes to the pause file which operation is on trial, or that none is any more.
func (l *Lanes) saveTrial(s *lane, now time.Time) {
	value := s.files[statefs.LanePaused].value
	if value.Hold.Until == nil {
		return // the pause is not written yet
	}
	if !l.config.Owner.Lanes.Unchanged(pausedFile(s.name), value) {
		l.reconcileSoon() // the file was just removed or changed, and that change wins
		return
	}
	l.pauseByBreaker(s, value.Hold, now)
}

// noteTrialBegun tells the breaker which operation the queue has let through.
func (l *Lanes) noteTrialBegun(s *lane) {
	id, ok := l.config.Queue.TakeTrial(s.name)
	if !ok {
		return
	}
	s.published.config.Paused, s.published.trial = true, false // the queue has already changed this
	if s.breaker.Started(id) {
		l.config.Logger.Info("lane admitted one trial operation", "lane", s.name, "id", id)
		l.saveTrial(s, l.config.Owner.Now())
	}
}

// syncBreaker updates the breaker of a lane from its pause file and the clock.
func (l *Lanes) syncBreaker(s *lane, now time.Time) {
	b := s.breaker
	if b == nil {
		return
	}
	defer l.saveFailures(s)
	l.noteTrialBegun(s)
	p := s.files[statefs.LanePaused]
	hold := p.value.Hold
	switch {
	case !p.exists && b.State() == breaker.Closed:
		return
	case !p.exists && s.pauseWritten:
		l.config.Logger.Info("lane resumed by a person; its breaker had paused it", "lane", s.name)
		b.Reset()
		s.pauseWritten = false
		return
	case !p.exists:
		until := cmp.Or(b.Until(), now)
		l.pauseByBreaker(s, statefs.LaneHold{Until: &until, Reason: failuresIn(s.config.Breaker)}, now)
	case !s.isBreakerPause(hold):
		b.Reset()
		s.pauseWritten = false
		return
	case b.State() == breaker.Closed, b.State() == breaker.Open && !b.Until().Equal(*hold.Until):
		b.Restore(*hold.Until, hold.Trial) // from an earlier daemon, or edited by a person
		s.pauseWritten = true
	}
	if b.AllowTrial(now) {
		l.config.Logger.Info("lane cooldown elapsed: one trial operation may start", "lane", s.name)
	}
	if id := b.TrialID(); id != (statefs.ID{}) && l.config.Queue.TrialEnded(id) && b.Inconclusive(id) {
		l.saveTrial(s, now)
	}
}
