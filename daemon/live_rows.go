package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// updateRow builds the list row of a live operation from its record.
func (op *operation) updateRow() {
	row := history.RowOf(op.rec)
	row.Status, row.Number = op.state, 0
	packed := row.Pack()
	op.row.Store(packed)
	if op.liveIndex != nil {
		op.liveIndex.Put(op.ident, packed)
	}
}

// packedRow returns the row that updateRow built last.
func (op *operation) packedRow() history.Packed {
	row, _ := op.row.Load().(history.Packed)
	return row
}

// addToIndex adds a newly tracked operation to the live index, which lists read.
func (op *operation) addToIndex(living *history.LiveIndex) {
	op.liveIndex = living
	living.Put(op.ident, op.packedRow())
}

// endInIndex marks the operation as ended in the live index, just before the history gets it.
func (op *operation) endInIndex() {
	if op.liveIndex != nil {
		op.liveIndex.End(op.ident, op.packedRow())
	}
}

// removeFromIndex removes an operation that is no longer tracked.
func (op *operation) removeFromIndex() {
	if op.liveIndex != nil {
		op.liveIndex.Remove(op.ident, op.packedRow())
		op.liveIndex = nil
	}
}

// Live returns the operations that the daemon manages, for lists.
func (d *Daemon) Live() []history.Live {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]history.Live, 0, len(d.ops))
	for _, op := range d.ops {
		if l := op.liveRow(); l.Row != nil {
			out = append(out, l)
		}
	}
	return out
}

func (op *operation) liveRow() history.Live {
	state, _ := op.publicState.Load().(statefs.State)
	return history.Live{ID: op.ident, State: state, Row: op.packedRow()}
}

// unsettledIDs holds the IDs in jobs/ for which the daemon knows that its memory does not match
// their markers: those of foreign programs, operations that it could not take over, and operations
// whose marker is missing. Any other mismatch lasts at most one reconcile.
type unsettledIDs struct {
	mu sync.Mutex
	// ids have the state of the marker if a reconcile found one and left it to a foreign program.
	ids map[statefs.ID]statefs.State
}

func (s *unsettledIDs) set(id statefs.ID, doubtful bool, seen ...statefs.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !doubtful {
		delete(s.ids, id)
		return
	}
	if s.ids == nil {
		s.ids = make(map[statefs.ID]statefs.State)
	}
	s.ids[id] = ""
	if len(seen) == 1 {
		s.ids[id] = seen[0]
	}
}

func (s *unsettledIDs) has(id statefs.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.ids[id]
	return has
}

// isForeign reports whether a reconcile has left the marker of an ID to a foreign program.
func (s *unsettledIDs) isForeign(id statefs.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id] != ""
}

// addTo adds the IDs that are not in ids: a change that is still to be reconciled may have replaced
// the state that was seen.
func (s *unsettledIDs) addTo(ids map[statefs.ID]statefs.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, state := range s.ids {
		if _, changing := ids[id]; !changing {
			ids[id] = state
		}
	}
}

// LiveIndex returns the up-to-date rows of the operations that the daemon manages, and separately
// the IDs whose markers may differ from them right now, with what is known of each. The row of an
// ID that the daemon does not manage is nil; a state beside it is that of the marker. ok is false
// while only a listing of jobs/ shows what is live: until the daemon is ready, and while the folder
// is scanned instead of watched.
func (d *Daemon) LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, ok bool) {
	if !isClosed(d.ready) || d.dir.Mode().Name == watch.ModeScan {
		return nil, nil, false
	}
	ids, ok := d.collectUnsettled()
	for id, state := range ids {
		l := history.Live{ID: id, State: state}
		if op := d.operation(id); op != nil {
			l = op.liveRow()
		}
		unsettled = append(unsettled, l)
	}
	return &d.liveIndex, unsettled, ok
}

// collectUnsettled collects the IDs that an event reported and no reconcile has handled, and those
// that a reconcile left unsettled. An ID moves through these places in the order in which they are
// read here, so none is missed. ok is false if events were lost, until everything has been
// reconciled.
func (d *Daemon) collectUnsettled() (ids map[statefs.ID]statefs.State, ok bool) {
	ids = make(map[statefs.ID]statefs.State)
	d.watchMu.Lock()
	waiting, lost := d.dir.Peek()
	d.watchMu.Unlock()
	for _, key := range waiting {
		ids[key.id] = ""
	}
	d.reconcileQueue.addTo(ids)
	d.unsettledIDs.addTo(ids)
	return ids, !lost
}
