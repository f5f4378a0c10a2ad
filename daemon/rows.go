package daemon

import (
	"sync"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// show makes the row that lists show of an operation while it lives.
func (op *operation) show() {
	row := history.RowOf(op.rec)
	row.Status, row.Number = op.state, 0
	packed := row.Pack()
	op.row.Store(packed)
	if op.living != nil {
		op.living.Put(op.ident, packed)
	}
}

// shows is the row as it was made last.
func (op *operation) shows() history.Packed {
	row, _ := op.row.Load().(history.Packed)
	return row
}

// enlist puts an operation that was taken in hand among those that lists look at.
func (op *operation) enlist(living *history.Living) {
	op.living = living
	living.Put(op.ident, op.shows())
}

// ends says that the index is about to have the operation.
func (op *operation) ends() {
	if op.living != nil {
		op.living.End(op.ident, op.shows())
	}
}

// delist is for an operation that is no longer in hand.
func (op *operation) delist() {
	if op.living != nil {
		op.living.Remove(op.ident, op.shows())
		op.living = nil
	}
}

// Live returns what the daemon has in hand, for lists.
func (d *Daemon) Live() []history.Live {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]history.Live, 0, len(d.ops))
	for _, op := range d.ops {
		if l := op.live(); l.Row != nil {
			out = append(out, l)
		}
	}
	return out
}

func (op *operation) live() history.Live {
	state, _ := op.shown.Load().(statefs.State)
	return history.Live{ID: op.ident, State: state, Row: op.shows()}
}

// doubts are IDs in jobs/ of which the daemon knows that its memory does not tell what their markers say: those of foreign programs,
// what it could not take in hand, and operations whose marker is missing. All other differences come and go within a look.
type doubts struct {
	mu  sync.Mutex
	ids map[statefs.ID]bool
}

func (s *doubts) note(id statefs.ID, doubtful bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !doubtful {
		delete(s.ids, id)
		return
	}
	if s.ids == nil {
		s.ids = make(map[statefs.ID]bool)
	}
	s.ids[id] = true
}

func (s *doubts) has(id statefs.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}

func (s *doubts) addTo(ids map[statefs.ID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.ids {
		ids[id] = true
	}
}

// Living returns the rows of what the daemon has in hand, kept up to date, and beside them the IDs whose markers may say something
// else at this moment, with what is known of each: the row is nil when it is not in hand. ok is false while only a listing of jobs/
// tells what lives: until the daemon is ready, and where no events say what changes.
func (d *Daemon) Living() (rows *history.Living, unsettled []history.Live, ok bool) {
	if !isClosed(d.ready) || d.dir.Mode().Name == watch.ModeScan {
		return nil, nil, false
	}
	ids, ok := d.inDoubt()
	for id := range ids {
		l := history.Live{ID: id}
		if op := d.operation(id); op != nil {
			l = op.live()
		}
		unsettled = append(unsettled, l)
	}
	return &d.living, unsettled, ok
}

// inDoubt collects the IDs that an event told of and that no look has dealt with, and those that one left in doubt. An ID goes through
// these in the order in which they are asked. ok is false when events were lost, until everything is looked at.
func (d *Daemon) inDoubt() (ids map[statefs.ID]bool, ok bool) {
	ids = make(map[statefs.ID]bool)
	d.passing.Lock()
	waiting, lost := d.dir.Waiting()
	d.passing.Unlock()
	for _, key := range waiting {
		ids[key.id] = true
	}
	d.looks.addTo(ids)
	d.doubts.addTo(ids)
	return ids, !lost
}
