package lanes

import (
	"time"

	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/notify"
)

// applied is the last state of a lane that was applied to the queue and published.
type applied struct {
	config         queue.Lane
	trial          bool // one operation is let through
	paused, closed holdState
}

// holdState is a pause or a close, with the fields whose change is published.
type holdState struct {
	held       bool
	until      time.Time
	reason, by string
}

func holdStateOf(c *file) holdState {
	if !c.exists {
		return holdState{}
	}
	hold := c.value.Hold
	h := holdState{held: true, reason: hold.Reason, by: hold.By}
	if hold.Until != nil {
		h.until = *hold.Until
	}
	return h
}

// state computes the state of a lane. every means that all lanes are paused. all is the capacity
// file for all lanes; it sets the capacity of a lane without a capacity file of its own.
func (s *lane) state(every bool, all *file) applied {
	p := s.files[statefs.LanePaused]
	out := applied{config: s.config.Lane, paused: holdStateOf(p), closed: holdStateOf(s.files[statefs.LaneClosed])}
	for _, c := range []*file{s.files[statefs.LaneCapacity], all} {
		if c.exists {
			out.config.Capacity = c.value.Capacity
			break
		}
	}
	out.config.Paused = s.config.Paused || p.exists
	if s.breaker != nil && (!p.exists || s.isBreakerPause(p.value.Hold)) {
		out.config.Paused = s.config.Paused || s.breaker.Blocks()
		out.trial = s.breaker.State() == breaker.Trial && !out.config.Paused
	}
	if every {
		out.config.Paused, out.trial = true, false
	}
	return out
}

// apply applies changed lane states to the queue and publishes the changes.
func (l *Lanes) apply(now time.Time) {
	every := l.byName[statefs.AllLanes].files[statefs.LanePaused].exists
	holds := make(map[statefs.LaneFile]statefs.LaneHold)
	reopened, repaused := false, false
	var changes []Change
	before := make(map[*lane]applied)
	for name, s := range l.byName {
		for control, f := range s.files {
			if f.exists {
				holds[statefs.LaneFile{Lane: name, Control: control}] = f.value.Hold
			}
		}
	}
	l.holds.Store(&holds) // before the queue applies the pauses
	for name, s := range l.byName {
		says := s.state(every && name != statefs.AllLanes, l.byName[statefs.AllLanes].files[statefs.LaneCapacity])
		if says == s.published && l.reconciled {
			continue
		}
		was := s.published
		before[s], s.published = was, says
		reopened = reopened || was.closed.held && says.closed != was.closed
		repaused = repaused || says.paused != was.paused
		if name != statefs.AllLanes && (says.config != was.config || says.trial != was.trial) {
			changes = append(changes, Change{name, says.config, says.trial})
		}
	}
	if len(changes) > 0 {
		l.config.Queue.SetLanes(changes...)
	}
	for s, was := range before { // after the queue has them: a reader of a pause may submit at once
		l.publishChanges(s, was, now)
	}
	l.reconciled = true
	if repaused {
		l.config.Queue.Changed() // a new reason or end time, which the queue does not know
	}
	if reopened {
		notify.Wake(l.reopened)
	}
}

// publishChanges logs and publishes what changed in a lane. Changes that the first reconcile finds
// are only logged.
func (l *Lanes) publishChanges(s *lane, before applied, now time.Time) {
	said := s.published
	if said.paused != before.paused {
		l.publishHold(s.name, said.paused, before.paused, "paused", "resumed", now)
	}
	if said.closed != before.closed {
		l.publishHold(s.name, said.closed, before.closed, "closed", "opened", now)
	}
	if capacity := said.config.Capacity; capacity != before.config.Capacity && s.name != statefs.AllLanes {
		l.config.Logger.Info("lane capacity changed", "lane", s.name, "capacity", statefs.FormatLaneCapacity(capacity))
		change := api.LaneChange{What: "capacity"}
		if capacity >= 0 {
			change.Capacity = &capacity
		}
		l.publish(s.name, change, now)
	}
}

func (l *Lanes) publishHold(name string, is, was holdState, begins, ends string, now time.Time) {
	change := api.LaneChange{What: ends, Reason: is.reason}
	if was.by == statefs.HeldByBreaker && !is.held {
		change.What = "breaker_closed"
	}
	if is.held {
		change.What = begins
		if is.by == statefs.HeldByBreaker {
			change.What = "breaker_opened"
		}
		change.Until = statefs.OptionalTime(is.until)
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
		l.config.Logger.Warn("lane changed", args...)
	} else {
		l.config.Logger.Info("lane changed", args...)
	}
	l.publish(name, change, now)
}

func (l *Lanes) publish(name string, change api.LaneChange, now time.Time) {
	if l.reconciled {
		l.config.Events.Publish(api.Event{Type: events.LaneChanged, At: now, Lane: name, Change: &change})
	}
}
