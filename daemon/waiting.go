package daemon

import (
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Waiting says why a live operation does not run; false: it does, or is not in hand.
func (d *Daemon) Waiting(id statefs.ID) (statefs.Waiting, bool) {
	if on, waits := d.chains.waitsFor(id); waits {
		return statefs.Waiting{Reason: statefs.WaitsForOthers, HeldBy: on.parent, Since: &on.since, NeedsPerson: d.personBehind(id)}, true
	}
	why, ok := d.admission.why(id)
	if !ok {
		op := d.operation(id)
		return statefs.Waiting{Reason: statefs.WaitsForNextDaemon}, op != nil && op.shown.Load() == statefs.Queued && d.draining()
	}
	out := waitingOf(why)
	if op := d.operation(id); op != nil && out.Reason == statefs.WaitsForKey {
		if row, ok := op.row.Load().(history.Packed); ok {
			if shown, err := row.Unpack(); err == nil {
				out.Key = shown.Key
			}
		}
	}
	if out.Reason == statefs.WaitsPausedLane {
		d.lanes.explain(&out)
	}
	if out.Reason == statefs.WaitsToStart && d.draining() {
		out.Reason = statefs.WaitsForNextDaemon
	}
	return out, true
}

// whyWaits is Waiting of an operation that is being looked at, also of one whose time has not come.
func (d *Daemon) whyWaits(op *operation) (statefs.Waiting, bool) {
	if op.state == statefs.Queued {
		return d.Waiting(op.id())
	}
	since := op.rec.Since()
	return statefs.Waiting{Reason: statefs.WaitsForTime, Until: op.rec.DueAt, Lane: laneOf(op.rec), Since: &since},
		(op.state == statefs.Scheduled || op.state == statefs.FailedRetryable) && op.rec.DueAt != nil
}

// explain adds until when a lane is paused and why, by its own file or by that of all lanes, whichever lasts longer.
func (l *lanes) explain(why *statefs.Waiting) {
	paused := *l.paused.Load()
	hold, is := paused[why.Lane]
	if all, every := paused[statefs.AllLanes]; every && (!is || hold.Until != nil && (all.Until == nil || all.Until.After(*hold.Until))) {
		hold, is = all, true
	}
	if is {
		why.Until, why.Note = hold.Until, hold.Reason
	}
}

// reasons has the words of the queue in those of everybody else.
var reasons = map[queue.Reason]statefs.Reason{
	queue.UnknownLane: statefs.WaitsUnknownLane, queue.LanePaused: statefs.WaitsPausedLane, queue.LaneFull: statefs.WaitsForLane,
	queue.UnknownLimit: statefs.WaitsUnknownLimit, queue.Limit: statefs.WaitsForLimit, queue.Rate: statefs.WaitsForRate,
	queue.Key: statefs.WaitsForKey, queue.Starting: statefs.WaitsToStart,
}

func waitingOf(why queue.Waiting) statefs.Waiting {
	out := statefs.Waiting{
		Reason: reasons[why.Reason], HeldBy: why.HeldBy.Whole(), Lane: why.Lane, Limit: why.Limit, Position: why.Position,
	}
	if !why.Since.IsZero() {
		out.Since = &why.Since
	}
	if !why.Until.IsZero() {
		out.Until = &why.Until
	}
	return out
}
