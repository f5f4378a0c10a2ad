package live

import (
	"cmp"
	"time"
	"unique"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// Snapshot is what is known of a live operation. It never changes: a change of the operation replaces
// it as a whole.
type Snapshot struct {
	ID    statefs.ID
	State statefs.State
	// Since is when the operation entered its state.
	Since time.Time
	// Row is its row in lists.
	Row history.Packed
	// Lane is the lane in which it waits or runs.
	Lane unique.Handle[string]
	// Parents are the operations that it comes after. They are kept while it is live, because it may
	// read their outcome in any state.
	Parents []statefs.ID
	// Awaits is the parent that it waits for; nil while it waits for none.
	Awaits *statefs.ID
	// Marker identifies the file of its marker, whatever the name.
	Marker files.Identity
	// CarriedOut are the requests that are carried out and not durable yet, as on a full disk.
	CarriedOut statefs.NameSet
	// Details are what Row does not have of its submit; nil if there are none, as for most.
	Details *Details
	// LastTransition and Steps are hashes of what the subscribers know of its record: the last transition that a
	// commit made durable, 0 for none, and the status and run of each step.
	LastTransition uint64
	Steps          []uint64
}

// Details are what a row does not have of a submit and a new record of it needs.
type Details struct {
	Priority       int
	NotBefore      *time.Time
	IdempotencyKey string
}

// Next returns the snapshot that follows s when the operation has this record and this state.
func (s *Snapshot) Next(rec *statefs.Record, state statefs.State) *Snapshot {
	row := history.RowOf(rec)
	row.Status, row.Number = state, 0
	lane, _ := rec.LaneAndLimits()
	next := &Snapshot{
		ID: s.ID, State: state, Since: rec.Since(), Row: row.Pack(), Lane: unique.Make(lane), Parents: rec.After,
		Marker: s.Marker, CarriedOut: s.CarriedOut, LastTransition: s.LastTransition, Steps: s.Steps,
	}
	if state == s.State && len(rec.After) > 0 {
		next.Awaits = s.Awaits
	}
	if d := (Details{rec.Priority, rec.NotBefore, rec.IdempotencyKey}); d != (Details{}) {
		next.Details = &d
	}
	return next
}

// RestoreDetails sets what the row does not have in a record that is made again.
func (s *Snapshot) RestoreDetails(rec *statefs.Record) {
	d := cmp.Or(s.Details, new(Details))
	rec.Priority, rec.NotBefore, rec.IdempotencyKey = d.Priority, d.NotBefore, d.IdempotencyKey
}
