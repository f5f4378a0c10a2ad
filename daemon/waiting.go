package daemon

import (
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Waiting returns why a live operation does not run, or false if it runs or the daemon does not
// manage it.
func (d *Daemon) Waiting(id statefs.ID) (statefs.Waiting, bool) {
	if _, s := d.live.Get(id); s != nil && s.Awaits != nil {
		return statefs.Waiting{
			Reason: statefs.WaitsForOthers, HeldBy: *s.Awaits, Since: new(s.Since),
			NeedsPerson: d.live.AncestorNeedingPerson(id),
		}, true
	}
	why, short, ok := d.admission.waitReason(id)
	if !ok {
		return statefs.Waiting{Reason: statefs.WaitsForNextDaemon}, d.stateOf(id) == statefs.Queued && d.draining()
	}
	out := waitingOf(why)
	if out.Reason == statefs.WaitsForKey {
		if d.stateOf(out.HeldBy).NeedsPerson() {
			out.NeedsPerson = out.HeldBy
		}
		if _, s := d.live.Get(id); s != nil {
			if row, err := s.Row.Unpack(); err == nil {
				out.Key = row.Key
			}
		}
	}
	if out.Reason == statefs.WaitsPausedLane {
		if hold, is := d.Lanes.Pause(out.Lane); is {
			out.Until, out.Note = hold.Until, hold.Reason
		}
	}
	switch {
	case out.Reason != statefs.WaitsToStart:
	case d.draining():
		out.Reason = statefs.WaitsForNextDaemon
	case short:
		out.Reason = statefs.WaitsForResources
	}
	return out, true
}

// waitingReason is Waiting for an operation that is being reconciled, which may also wait for its
// time.
func (d *Daemon) waitingReason(op *operation) (statefs.Waiting, bool) {
	if op.state == statefs.Queued {
		return d.Waiting(op.id())
	}
	since := op.rec.Since()
	return statefs.Waiting{Reason: statefs.WaitsForTime, Until: op.rec.DueAt, Lane: laneOf(op.rec), Since: &since},
		(op.state == statefs.Scheduled || op.state == statefs.FailedRetryable) && op.rec.DueAt != nil
}

// waitReasons maps the reasons of the queue to the published ones.
var waitReasons = map[queue.Reason]statefs.WaitReason{
	queue.UnknownLane: statefs.WaitsUnknownLane, queue.LanePaused: statefs.WaitsPausedLane,
	queue.LaneFull:     statefs.WaitsForLane,
	queue.UnknownLimit: statefs.WaitsUnknownLimit, queue.Limit: statefs.WaitsForLimit, queue.Rate: statefs.WaitsForRate,
	queue.Key: statefs.WaitsForKey, queue.Starting: statefs.WaitsToStart,
}

func waitingOf(why queue.Waiting) statefs.Waiting {
	out := statefs.Waiting{
		Reason: waitReasons[why.Reason], HeldBy: why.HeldBy.Whole(), Lane: why.Lane, Limit: why.Limit, Position: why.Position,
	}
	if !why.Since.IsZero() {
		out.Since = &why.Since
	}
	if !why.Until.IsZero() {
		out.Until = &why.Until
	}
	return out
}
