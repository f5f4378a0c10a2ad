package daemon

import (
	"time"

	"github.com/jobdir/jobdir/breaker"
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
)

// laneSays is how a lane is, as the queue and everybody who follows were told.
type laneSays struct {
	set            queue.Lane
	one            bool // one operation is let through
	paused, closed heldAs
	capacity       int
}

// heldAs is a pause or a close, as far as a change of it is news.
type heldAs struct {
	held       bool
	until      time.Time
	reason, by string
}

func heldBy(c *laneFile) heldAs {
	if !c.there {
		return heldAs{}
	}
	hold := c.value.Hold
	h := heldAs{held: true, reason: hold.Reason, by: hold.By}
	if hold.Until != nil {
		h.until = *hold.Until
	}
	return h
}

// says works out how a lane is; every says whether all lanes are paused, and all what the file says that gives a capacity to those without one of
// their own.
func (s *lane) says(every bool, all *laneFile) laneSays {
	p := s.files[statefs.LanePaused]
	out := laneSays{set: s.config.Lane, paused: heldBy(p), closed: heldBy(s.files[statefs.LaneClosed])}
	for _, c := range []*laneFile{s.files[statefs.LaneCapacity], all} {
		if c.there {
			out.set.Capacity = c.value.Capacity
			break
		}
	}
	out.capacity = out.set.Capacity
	out.set.Paused = s.config.Paused || p.there
	if s.breaker != nil && (!p.there || s.breaks(p.value.Hold)) {
		out.set.Paused = s.config.Paused || s.breaker.Holds()
		out.one = s.breaker.State() == breaker.Trial && !out.set.Paused
	}
	if every {
		out.set.Paused, out.one = true, false
	}
	return out
}

// apply tells the queue and everybody who follows what has changed.
func (l *lanes) apply(now time.Time) {
	every := l.all[statefs.AllLanes].files[statefs.LanePaused].there
	closed, paused := make(map[string]statefs.LaneHold), make(map[string]statefs.LaneHold)
	reopened, repaused := false, false
	for name, s := range l.all { // before the queue says that they are
		if p := s.files[statefs.LanePaused]; p.there {
			paused[name] = p.value.Hold
		}
	}
	l.paused.Store(&paused)
	for name, s := range l.all {
		if c := s.files[statefs.LaneClosed]; c.there {
			closed[name] = c.value.Hold
		}
		says := s.says(every && name != statefs.AllLanes, l.all[statefs.AllLanes].files[statefs.LaneCapacity])
		if says == s.said && l.looked {
			continue
		}
		before := s.said
		s.said = says
		reopened = reopened || before.closed.held && says.closed != before.closed
		repaused = repaused || says.paused != before.paused
		if name != statefs.AllLanes && (says.set != before.set || says.one != before.one) {
			l.admission.setLane(name, says.set, says.one)
		}
		l.tell(s, before, now)
	}
	l.closed.Store(&closed)
	l.looked = true
	if repaused && l.admission.changed != nil {
		l.admission.changed() // for another reason, or until another time, of which the queue knows nothing
	}
	if reopened {
		select {
		case l.reopened <- struct{}{}:
		default: // who waits is about to look
		}
	}
}

// tell says what has changed of a lane. What was so when the daemon began is no news, but stands in its log.
func (l *lanes) tell(s *lane, before laneSays, now time.Time) {
	said := s.said
	if said.paused != before.paused {
		l.tellHold(s.name, said.paused, before.paused, "paused", "resumed", now)
	}
	if said.closed != before.closed {
		l.tellHold(s.name, said.closed, before.closed, "closed", "opened", now)
	}
	if said.capacity != before.capacity && s.name != statefs.AllLanes {
		l.logger.Info("a lane has another capacity", "lane", s.name, "capacity", statefs.FormatLaneCapacity(said.capacity))
		change := events.LaneChange{What: "capacity"}
		if said.capacity >= 0 {
			change.Capacity = &said.capacity
		}
		l.publish(s.name, change, now)
	}
}

func (l *lanes) tellHold(name string, is, was heldAs, begins, ends string, now time.Time) {
	change := events.LaneChange{What: ends, Reason: is.reason}
	if was.by == statefs.HeldByBreaker && !is.held {
		change.What = "breaker_closed"
	}
	if is.held {
		change.What = begins
		if is.by == statefs.HeldByBreaker {
			change.What = "breaker_opened"
		}
		if !is.until.IsZero() {
			change.Until = &is.until
		}
	}
	args := []any{"lane", name, "what", change.What}
	if is.reason != "" {
		args = append(args, "reason", is.reason)
	}
	if is.by != "" {
		args = append(args, "by", is.by)
	}
	if change.Until != nil {
		args = append(args, "until", *change.Until)
	}
	if change.What == "breaker_opened" {
		l.logger.Warn("a lane has changed", args...)
	} else {
		l.logger.Info("a lane has changed", args...)
	}
	l.publish(name, change, now)
}

func (l *lanes) publish(name string, change events.LaneChange, now time.Time) {
	if l.looked {
		l.events.Publish(events.Event{Type: events.LaneChanged, At: now, Lane: name, Change: &change})
	}
}
