package daemon

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/tally"
)

// count has the operation counted in its present state from now on.
func (op *operation) count(t *tally.Tally) {
	lane, _ := op.rec.Takes()
	op.tally = t.Counter(lane)
	op.recount(op.state)
}

// recount counts the operation in another state; "" is for one that is no longer in hand.
func (op *operation) recount(state statefs.State) {
	if op.tally == nil {
		return
	}
	if op.counted == statefs.Queued {
		op.tally.Unqueue(op.queuedAt)
	}
	next := op.tally
	if len(op.rec.Steps) > 0 { // a step may have a lane of its own
		lane, _ := op.rec.Takes()
		next = op.tally.In(lane)
	}
	if op.queuedAt = op.rec.Since(); state == statefs.Queued {
		next.Queue(op.queuedAt)
	}
	op.tally.MoveTo(next, op.counted, state)
	op.tally, op.counted = next, state
}

// measure notes how long an operation was queued when it begins to run, and how long it worked when it ends.
func (d *Daemon) measure(rec *statefs.Record, t statefs.Transited) {
	switch {
	case t.From == statefs.Queued && t.To == statefs.Running:
		if at, ok := rec.QueuedAt(t); ok {
			d.tally.Waited(rec.Lane, t.At.Sub(at), d.owner.Now())
		}
	case (t.To.Terminal() && t.From != statefs.Trailing || t.To == statefs.Trailing) && rec.StartedAt != nil:
		d.tally.Worked(rec.Lane, rec.Worked(t.At), d.owner.Now())
	}
}

// States counts what the daemon has in hand, by state. It looks at no operation for it.
func (d *Daemon) States() map[statefs.State]int { return d.tally.States() }

// Has reports whether an operation is in hand.
func (d *Daemon) Has(id statefs.ID) bool { return d.manages(id) }

// Stats returns what lanes are like: all that are set, and all that ever had an operation. It looks at no operation for it either.
func (d *Daemon) Stats() tally.Stats {
	s := tally.Stats{At: d.owner.Now(), WindowSeconds: tally.WindowSeconds}
	s.Lanes, s.All = d.tally.Lanes(s.At)
	for _, set := range d.Lanes() {
		i, known := slices.BinarySearchFunc(s.Lanes, set.Name, func(l tally.Lane, name string) int { return strings.Compare(l.Name, name) })
		if !known {
			s.Lanes = slices.Insert(s.Lanes, i, tally.Lane{Name: set.Name, States: map[statefs.State]int{}, Ages: tally.Ages{}})
		}
		s.Lanes[i].Held = set.Paused
		if set.Known && set.Capacity >= 0 {
			s.Lanes[i].Capacity = &set.Capacity
		}
	}
	return s
}
