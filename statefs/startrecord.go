package statefs

import (
	"fmt"
	"time"
)

// StartUnrecorded reports whether an operation is in the state that the first start of a handler
// leaves: the marker is running, and the record does not have the start yet. Only a caller that
// knows the job can distinguish this from a marker that a person moved.
func StartUnrecorded(rec *Record, marker State) bool {
	return marker == Running && rec.Status == Queued && rec.Next == "" && rec.Run == 0 && rec.Starts == 0
}

// RecordStart records the start of the run at the given time in such a record.
func (r *Record) RecordStart(at time.Time) error {
	if at.Before(r.Since()) {
		at = r.Since() // the clock was set back
	}
	if err := r.Apply(Queued, CauseStart, at); err != nil {
		return err
	}
	r.Run, r.Starts, r.StartedAt = 1, 1, &at
	return nil
}

// MarkerMovedAt returns when the marker of an operation was created or last renamed.
func (o *Owner) MarkerMovedAt(id ID, marker State) (time.Time, error) {
	at, err := o.nameChangedAt(MarkerName(id, marker))
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the marker of %s: %w", id, err)
	}
	return at, nil
}
