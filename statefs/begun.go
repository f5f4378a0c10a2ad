package statefs

import (
	"fmt"
	"time"
)

// BegunUnsaid reports whether an operation is as the first run of a handler leaves it at its start: the marker says running, and the record does
// not yet. Only who knows the job can tell it from a marker that somebody moved by hand.
func BegunUnsaid(rec *Record, marker State) bool {
	return marker == Running && rec.Status == Queued && rec.Next == "" && rec.Run == 0 && rec.Starts == 0
}

// Begun notes in such a record that the run had begun at a time.
func (r *Record) Begun(at time.Time) error {
	if at.Before(r.Since()) {
		at = r.Since() // the clock was set back
	}
	if err := r.Apply(Queued, CauseStart, at); err != nil {
		return err
	}
	r.Run, r.Starts, r.StartedAt = 1, 1, &at
	return nil
}

// MovedAt returns when the marker of an operation was made or last renamed.
func (o *Owner) MovedAt(id ID, marker State) (time.Time, error) {
	at, err := o.Tree.changed(MarkerName(id, marker))
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the marker of %s: %w", id, err)
	}
	return at, nil
}
