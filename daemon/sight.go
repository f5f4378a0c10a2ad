package daemon

import "github.com/jobdir/jobdir/statefs"

// allListed is set in the names of a wish when a listing has no others of the operation. A name that was given to it while the listing was made is
// told by the watch, which is older.
const allListed = statefs.AllNames + 1

// sight returns what exists of an operation. Seventeen names are asked for when nothing is known, and most looks are about one or two of them:
// what the watch told of, and what the look before left there. A name appears only with an event, and after a lost one everything is asked for;
// so is where the answer is another one than the marker alone, and for what is there and could not be taken in hand before.
func (d *Daemon) sight(id statefs.ID, names statefs.Names) (statefs.Sight, error) {
	op := d.operation(id)
	if names&statefs.AllNames == statefs.AllNames {
		return d.wholeSight(op, id)
	}
	asked := names & statefs.AllNames
	if op != nil {
		asked |= statefs.NameOf(op.state) | op.open
	}
	sight, err := d.owner.LookFor(id, asked)
	if err != nil {
		return sight, err
	}
	usual := false
	switch {
	case len(sight.Odd) > 0:
	case op != nil:
		usual = len(sight.States) == 1 && sight.States[0] == op.state
	case names&allListed != 0:
		usual = len(sight.States) == 1
	default: // what ended, whose names have gone, or what is new
		usual = len(sight.States) <= 1 && len(sight.Asks) == 0 && !d.doubts.has(id)
	}
	if !usual {
		return d.wholeSight(op, id)
	}
	if op != nil {
		op.note(sight)
	}
	return sight, nil
}

func (d *Daemon) wholeSight(op *operation, id statefs.ID) (statefs.Sight, error) {
	sight, err := d.owner.Look(id)
	if err == nil && op != nil {
		op.note(sight)
	}
	return sight, err
}

// note keeps in mind what is there beside the marker.
func (op *operation) note(sight statefs.Sight) {
	op.open = 0
	if len(sight.Odd) > 0 || len(sight.States) != 1 {
		op.open = statefs.AllNames
		return
	}
	for _, ask := range sight.Asks {
		op.open |= statefs.Name{Ask: ask}.Bit()
	}
}
