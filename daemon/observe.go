package daemon

import (
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
)

// namesFromListing is set in the names to observe if a listing shows no other name of the
// operation. A name that appeared while the listing was made is reported by the watch, which was
// opened before it.
const namesFromListing = statefs.AllNames + 1

// observe returns which names of an operation exist. Of all possible names, most
// reconciles need only one or two: the names that the watch reported, and the names that the
// previous reconcile left. That is enough because a name appears only with an event. All names are
// checked after lost events, if the result is not the expected one, and for IDs that could not be
// taken over before.
func (d *Daemon) observe(id statefs.ID, names statefs.NameSet) (statefs.Observation, error) {
	op := d.operation(id)
	if names&statefs.AllNames == statefs.AllNames {
		return d.observeAll(op, id)
	}
	asked := names & statefs.AllNames
	if op != nil {
		asked |= statefs.MarkerBit(op.state) | op.extraNames
	}
	sight, err := d.owner.Observe(id, asked)
	if err != nil {
		return sight, err
	}
	usual := false
	switch {
	case len(sight.Irregular) > 0:
	case op != nil:
		usual = decide.Markers(op.state, sight.States) == decide.Kept
	case names&namesFromListing != 0:
		usual = len(sight.States) == 1
	default: // finished operations without names, or new ones
		usual = len(sight.States) <= 1 && len(sight.Requests) == 0 && !d.unsettledIDs.has(id) && !d.earlyRequests.has(id)
	}
	if !usual {
		return d.observeAll(op, id)
	}
	if op != nil {
		op.noteObservation(sight)
	}
	return sight, nil
}

func (d *Daemon) observeAll(op *operation, id statefs.ID) (statefs.Observation, error) {
	sight, err := d.owner.ObserveAll(id)
	if err == nil && op != nil {
		op.noteObservation(sight)
	}
	return sight, err
}

// noteObservation remembers which names exist besides the marker.
func (op *operation) noteObservation(sight statefs.Observation) {
	op.extraNames = 0
	if len(sight.Irregular) > 0 || len(sight.States) != 1 {
		op.extraNames = statefs.AllNames
		return
	}
	for _, ask := range sight.Requests {
		op.extraNames |= statefs.Name{Action: ask}.Bit()
	}
}
