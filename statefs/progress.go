package statefs

import (
	"encoding/json"
	"time"
)

// Progress is the content of ID.progress: how far the work is and when it last gave a sign of life. It may be lost.
type Progress struct {
	Done  int64     `json:"done"`
	Total *int64    `json:"total"`
	Phase string    `json:"phase,omitempty"`
	At    time.Time `json:"at"`
}

// ReadProgress returns the last progress of an operation; fs.ErrNotExist is wrapped when it never said any.
func (t *Tree) ReadProgress(id ID) (Progress, error) {
	var p Progress
	name := dayFile(id, ".progress")
	data, err := t.readRegular(t.root, name, 1<<16)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, &CorruptError{name, err.Error()}
	}
	return p, nil
}

// Freshen takes over what ID.progress knows newer than the record: how far the work is, and its last sign of life. The record of what has
// ended is never older.
func (t *Tree) Freshen(rec *Record) {
	if rec.Status.Terminal() {
		return
	}
	p, err := t.ReadProgress(rec.ID)
	if err != nil {
		return // it may be lost
	}
	// A record of the future was written before the clock was set back, and so before the file.
	if known := rec.HeartbeatAt; known != nil && !p.At.After(*known) && !known.After(t.options.Now()) {
		return
	}
	rec.Progress, rec.HeartbeatAt = &p, &p.At
}
