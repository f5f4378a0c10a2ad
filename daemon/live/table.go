package live

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/daemon/counts"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// Table holds the live operations of a daemon. Op is what its owner keeps of an operation beside the
// snapshot; the table only hands it out. The zero value is empty. It is safe for concurrent use.
type Table[Op any] struct {
	mu       sync.Mutex
	entries  map[statefs.ID]entry[Op]
	rows     history.LiveIndex
	counters counts.Counters
	// children are the queued operations that come after each operation.
	children map[statefs.ID]map[statefs.ID]struct{}

	subscribers []func(Change)
}

// Change is one change of the table: an operation that is new (Before is nil), changed, or gone (After is
// nil).
type Change struct {
	Before, After *Snapshot
	// Record is the record of the operation if a commit made it durable, else nil. It is valid during the call only.
	Record *statefs.Record
}

// Subscribe calls f for each later change, in order, before anybody can read it. The lock of the table is held
// during the call: f must not call the table, and must not block. It is called before the table is used.
func (t *Table[Op]) Subscribe(f func(Change)) { t.subscribers = append(t.subscribers, f) }

type entry[Op any] struct {
	op Op
	*Snapshot
	announced bool // the owner does not manage it yet
}

// Add enters an operation.
func (t *Table[Op]) Add(op Op, s *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(s.ID, entry[Op]{op: op, Snapshot: s}, nil)
}

// Announce enters operations that are being submitted, with the zero Op, unless they are in the table. While its
// State is "", an operation is only expected: subscribers get it, but readers do not, and it may be announced
// again with its state. Add follows, or Withdraw.
func (t *Table[Op]) Announce(all ...*Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range all {
		if e, has := t.entries[s.ID]; !has || e.announced && e.State == "" {
			t.set(s.ID, entry[Op]{Snapshot: s, announced: true}, nil)
		}
	}
}

// Announced reports whether an operation was announced and not added.
func (t *Table[Op]) Announced(id statefs.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[id].announced
}

// AllAnnounced returns the operations that were announced and not added.
func (t *Table[Op]) AllAnnounced() (ids []statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, e := range t.entries {
		if e.announced {
			ids = append(ids, id)
		}
	}
	return ids
}

// Withdraw forgets an operation that was announced and not added.
func (t *Table[Op]) Withdraw(id statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e.announced {
		t.replace(e.Snapshot, nil, nil)
		delete(t.entries, id)
	}
}

// Put replaces the snapshot of an operation. It does nothing for an operation that is not in the table.
func (t *Table[Op]) Put(s *Snapshot) { t.Commit(s, nil) }

// Commit is Put of a snapshot that is Committed: the subscribers get the durable record with the change.
func (t *Table[Op]) Commit(s *Snapshot, rec *statefs.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, has := t.entries[s.ID]; has {
		e.Snapshot = s
		t.set(s.ID, e, rec)
	}
}

func (t *Table[Op]) set(id statefs.ID, e entry[Op], rec *statefs.Record) {
	if t.entries == nil {
		t.entries, t.children = make(map[statefs.ID]entry[Op]), make(map[statefs.ID]map[statefs.ID]struct{})
	}
	before := t.entries[id].Snapshot
	e.arrivesAs(before)
	t.replace(before, e.Snapshot, rec)
	t.entries[id] = e
}

// End marks an operation as ended for lists: the history is about to get it, and until Remove each list
// shows it once, from one of the two.
func (t *Table[Op]) End(id statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, has := t.entries[id]; has {
		t.rows.End(e.Row)
	}
}

// Remove forgets an operation, after a commit made rec durable unless it is nil. If an operation ends before it was
// added, s is its snapshot and the subscribers get that end all the same.
func (t *Table[Op]) Remove(s *Snapshot, rec *statefs.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, has := t.entries[s.ID]; has {
		t.replace(e.Snapshot, nil, rec)
		delete(t.entries, s.ID)
	} else if rec != nil {
		t.publish(s, nil, rec)
	}
}

// replace updates what follows from the snapshots, and tells the subscribers; nil means none.
func (t *Table[Op]) replace(before, after *Snapshot, rec *statefs.Record) {
	t.updateLists(before.listed(), after.listed())
	t.publish(before, after, rec)
}

func (t *Table[Op]) publish(before, after *Snapshot, rec *statefs.Record) {
	for _, f := range t.subscribers {
		f(Change{before, after, rec})
	}
}

func (t *Table[Op]) updateLists(before, after *Snapshot) {
	t.counters.Move(place(before), place(after))
	switch {
	case after == nil && before == nil:
		return
	case after == nil:
		t.rows.Remove(before.Row)
	case before == nil, !bytes.Equal(before.Row, after.Row):
		t.rows.Put(after.Row)
	default:
		after.Row = before.Row // which the rows hold: an equal copy would double the memory
	}
	if before == nil || after == nil || before.State != after.State || len(before.Parents()) != len(after.Parents()) {
		t.setChild(before, false)
		t.setChild(after, true)
	}
}

func place(s *Snapshot) counts.Place {
	if s == nil {
		return counts.Place{}
	}
	return counts.Place{Lane: s.Lane.Value(), State: s.State, Since: s.Since}
}

// setChild adds a queued operation to the children of its parents, or removes it.
func (t *Table[Op]) setChild(s *Snapshot, add bool) {
	if s == nil || s.State != statefs.Queued {
		return
	}
	for _, parent := range s.Parents() {
		of := t.children[parent]
		if !add {
			if delete(of, s.ID); len(of) == 0 {
				delete(t.children, parent)
			}
			continue
		}
		if of == nil {
			of = make(map[statefs.ID]struct{})
			t.children[parent] = of
		}
		of[s.ID] = struct{}{}
	}
}

// Get returns an operation and its snapshot; no snapshot if it is not in the table.
func (t *Table[Op]) Get(id statefs.ID) (Op, *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	return e.op, e.listed()
}

// Each calls f with each of these operations, names of it, and its snapshot, nil if it is not in the table. The lock of
// the table is held during the call: neither ids nor f may call the table or block.
func (t *Table[Op]) Each(ids iter.Seq2[statefs.ID, statefs.NameSet], f func(statefs.ID, statefs.NameSet, *Snapshot)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, names := range ids {
		f(id, names, t.entries[id].listed())
	}
}

// All returns the snapshots of all operations, in no order.
func (t *Table[Op]) All() []*Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Snapshot, 0, len(t.entries))
	for _, e := range t.entries {
		if e.State != "" {
			all = append(all, e.Snapshot)
		}
	}
	return all
}

// Children returns the queued operations that come after an operation.
func (t *Table[Op]) Children(parent statefs.ID) []statefs.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.children[parent]))
}

// maxAncestors bounds how many ancestors of an operation are checked.
const maxAncestors = 100

// AncestorNeedingPerson returns the nearest of the parents of an operation, their parents, and so on,
// that waits for a person, or the zero ID.
func (t *Table[Op]) AncestorNeedingPerson(child statefs.ID) (none statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue, seen := []statefs.ID{child}, map[statefs.ID]bool{child: true}
	for at := 0; at < len(queue); at++ {
		s := t.entries[queue[at]].Snapshot
		if s == nil {
			continue
		}
		if at > 0 && s.State.NeedsPerson() {
			return queue[at]
		}
		for _, parent := range s.Parents() {
			if !seen[parent] && len(queue) <= maxAncestors {
				seen[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	return none
}

// Rows returns the rows of all operations, for lists.
func (t *Table[Op]) Rows() *history.LiveIndex { return &t.rows }

// Counters returns the counts of all operations by lane and state.
func (t *Table[Op]) Counters() *counts.Counters { return &t.counters }
