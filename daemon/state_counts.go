package daemon

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// startCounting counts the operation in its present state from now on.
func (op *operation) startCounting(t *tally.Counters) {
	lane, _ := op.rec.LaneAndLimits()
	op.counter = t.LaneCounter(lane)
	op.countAs(op.state)
}

// countAs moves the operation to another state in the counters; "" removes it.
func (op *operation) countAs(state statefs.State) {
	if op.counter == nil {
		return
	}
	if op.countedState == statefs.Queued {
		op.counter.Unqueue(op.queuedAt)
	}
	next := op.counter
	if len(op.rec.Steps) > 0 { // a step may have its own lane
		lane, _ := op.rec.LaneAndLimits()
		next = op.counter.ForLane(lane)
	}
	if op.queuedAt = op.rec.Since(); state == statefs.Queued {
		next.Queue(op.queuedAt)
	}
	op.counter.MoveTo(next, op.countedState, state)
	op.counter, op.countedState = next, state
}

// measureDurations records the queue time of an operation when it starts, and its working time when
// it ends.
func (d *Daemon) measureDurations(rec *statefs.Record, t statefs.PastTransition) {
	switch {
	case t.From == statefs.Queued && t.To == statefs.Running:
		if at, ok := rec.QueuedAt(t); ok {
			d.laneCounters.AddWait(rec.Lane, t.At.Sub(at), d.owner.Now())
		}
	case (t.To.Terminal() && t.From != statefs.Trailing || t.To == statefs.Trailing) && rec.StartedAt != nil:
		d.laneCounters.AddRun(rec.Lane, rec.ActiveTime(t.At), d.owner.Now())
	}
}

// States returns how many operations the daemon manages, by state. It does not visit the
// operations.
func (d *Daemon) States() map[statefs.State]int { return d.laneCounters.States() }

// CarriedOut returns the requests of an operation that are carried out and not durable yet, as on a
// full disk, and whether the daemon manages the operation.
func (d *Daemon) CarriedOut(id statefs.ID) (requests statefs.NameSet, managed bool) {
	op := d.operation(id)
	if op == nil {
		return 0, false
	}
	return statefs.NameSet(op.carriedOut.Load()), true
}

// Stats returns the statistics of all configured lanes and of all lanes that ever had an operation.
// It does not visit the operations either.
func (d *Daemon) Stats() api.LiveStats {
	s := api.LiveStats{At: d.owner.Now(), WindowSeconds: tally.WindowSeconds}
	s.Lanes, s.All = d.laneCounters.Lanes(s.At)
	for _, set := range d.admission.Lanes() {
		i, known := slices.BinarySearchFunc(s.Lanes, set.Name,
			func(l api.LaneStats, name string) int { return strings.Compare(l.Name, name) })
		if !known {
			s.Lanes = slices.Insert(s.Lanes, i, api.LaneStats{Name: set.Name, States: map[statefs.State]int{}, Ages: api.Ages{}})
		}
		s.Lanes[i].Held = set.Paused
		if set.Known && set.Capacity >= 0 {
			s.Lanes[i].Capacity = &set.Capacity
		}
	}
	return s
}
