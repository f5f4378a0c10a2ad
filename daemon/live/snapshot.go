package live

import (
	"cmp"
	"time"
	"unique"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// Snapshot is what is known of a live operation. It never changes: a change of the operation replaces
// it as a whole.
type Snapshot struct {
	ID statefs.ID
	// State is "" while the operation is expected and lists do not have it yet.
	State statefs.State
	// Since is when the operation entered its state.
	Since time.Time
	// Row is its row in lists.
	Row history.Packed
	// Lane is the lane in which it waits or runs.
	Lane unique.Handle[string]
	// Awaits is the parent that it waits for; nil while it waits for none.
	Awaits *statefs.ID
	// Marker identifies the file of its marker, whatever the name.
	Marker files.Identity
	// Names are the names besides its marker that its last reconcile found or left: requests that are not dropped yet.
	Names statefs.NameSet
	// Place is its place in the queue.
	Place Place
	// List is the ID of the first operation of the list with which it arrives; nil if it is submitted
	// alone or has a place.
	List *statefs.ID
	// Details are what few operations have; nil if it has none of them.
	Details *Details
	// LastTransition and Steps are hashes of what the subscribers know of its record: the last transition that a
	// commit made durable, 0 for none, and the status and run of each step.
	LastTransition uint64
	Steps          []uint64
}

// Place is the place of an operation in the queue. The queue follows it.
type Place struct {
	Standing decide.Standing
	// Item is what the queue knows of the operation; nil outside of the queue, and while an operation arrives
	// that has no key or whose key is not known.
	Item *queue.Item
}

// Details are what a row does not have and few operations have: some memory for each, and there may be many.
type Details struct {
	// Priority, NotBefore and IdempotencyKey are needed for a new record of the operation.
	Priority       int
	NotBefore      *time.Time
	IdempotencyKey string
	// Parents are the operations that it comes after. They are kept while it is live, because it may
	// read their outcome in any state.
	Parents []statefs.ID
}

// Next returns the snapshot that follows s when the operation has this record and this state.
func (s *Snapshot) Next(rec *statefs.Record, state statefs.State) *Snapshot {
	row := history.RowOf(rec)
	row.Status, row.Number = state, 0
	lane, _ := rec.LaneAndLimits()
	next := &Snapshot{
		ID: s.ID, State: state, Since: rec.Since(), Row: row.Pack(), Lane: unique.Make(lane),
		Marker: s.Marker, Names: s.Names, LastTransition: s.LastTransition, Steps: s.Steps,
		Place: s.Place, List: s.List,
	}
	if state == s.State && len(rec.After) > 0 {
		next.Awaits = s.Awaits
	}
	if rec.Priority != 0 || rec.NotBefore != nil || rec.IdempotencyKey != "" || len(rec.After) > 0 {
		next.Details = &Details{rec.Priority, rec.NotBefore, rec.IdempotencyKey, rec.After}
	}
	return next
}

// listed returns a snapshot that lists and counts have, nil for an operation that is only expected.
func (s *Snapshot) listed() *Snapshot {
	if s == nil || s.State == "" {
		return nil
	}
	return s
}

// arrivesAs lets an arriving operation keep its list and its turn when more is known of it.
func (s *Snapshot) arrivesAs(before *Snapshot) {
	if before == nil || before.Place.Standing != decide.Arriving || s.Place.Standing != decide.Arriving {
		return
	}
	s.List = cmp.Or(s.List, before.List)
	s.Place.Item = cmp.Or(before.Place.Item, s.Place.Item)
}

// Parents returns the operations that it comes after.
func (s *Snapshot) Parents() []statefs.ID {
	if s.Details == nil {
		return nil
	}
	return s.Details.Parents
}

// RestoreDetails sets what the row does not have in a record that is made again.
func (s *Snapshot) RestoreDetails(rec *statefs.Record) {
	d := cmp.Or(s.Details, new(Details))
	rec.Priority, rec.NotBefore, rec.IdempotencyKey = d.Priority, d.NotBefore, d.IdempotencyKey
}
