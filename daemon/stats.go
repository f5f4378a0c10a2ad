package daemon

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// measureDurations records the queue time of an operation when it starts, and its working time when
// it ends.
func (d *Daemon) measureDurations(rec *statefs.Record, t statefs.PastTransition) {
	switch {
	case t.From == statefs.Queued && t.To == statefs.Running:
		if at, ok := rec.QueuedAt(t); ok {
			d.live.Counters().AddWait(rec.Lane, t.At.Sub(at), d.owner.Now())
		}
	case (t.To.Terminal() && t.From != statefs.Trailing || t.To == statefs.Trailing) && rec.StartedAt != nil:
		d.live.Counters().AddRun(rec.Lane, rec.ActiveTime(t.At), d.owner.Now())
	}
}

// Stats returns the statistics of all configured lanes and of all lanes that ever had an operation.
// It does not visit the operations either.
func (d *Daemon) Stats() api.LiveStats {
	s := api.LiveStats{At: d.owner.Now(), WindowSeconds: tally.WindowSeconds}
	s.Lanes, s.All = d.live.Counters().Lanes(s.At)
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
