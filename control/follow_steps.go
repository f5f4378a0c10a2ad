package control

import (
	"encoding/json"
	"os"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// A step changes without any change in jobs/, so whoever follows steps follows the record too: it is replaced each time it changes, which ends
// its subscription with a last wake, as that of the progress.

// followRecord has the record followed from now on.
func (f *follower) followRecord() {
	f.follows = true
	f.lookAtRecord()
}

// lookAtRecord subscribes to the record as it is now, and has it read again when it is another one than before.
func (f *follower) lookAtRecord() {
	path := f.hub.tree.RecordPath(f.id)
	info, err := os.Stat(path)
	if err != nil || sameFile(info, f.record) {
		return // it was deleted, or has not changed
	}
	f.record = info
	if f.unrecord != nil {
		f.unrecord()
		f.unrecord = nil
	}
	if cancel, err := f.hub.logs.Subscribe(path, f.wake); err == nil {
		f.unrecord = cancel
	}
	f.lookAgain() // it may have been replaced before the subscription, or cannot be watched: other wakes look here too
}

func sameFile(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stepJSON is the data of the event of a step.
type stepJSON struct {
	ID        statefs.ID   `json:"id"`
	Step      string       `json:"step"`
	Status    steps.Status `json:"status"`
	Number    int          `json:"number"`
	Total     int          `json:"total"`
	Run       int          `json:"run,omitempty"`
	Retries   int          `json:"retries,omitempty"`
	Optional  bool         `json:"optional,omitempty"`
	ErrorCode string       `json:"error_code,omitempty"`
	Error     string       `json:"error,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	// Seconds is how long its last run took; nil while it goes on.
	Seconds *float64 `json:"duration_seconds,omitempty"`
}

// showSteps keeps the steps for the events, and follows the record of an operation that has some.
func (f *follower) showSteps(rec *statefs.Record) {
	if len(rec.Steps) == 0 {
		return
	}
	if !f.follows {
		f.followRecord()
	}
	f.snap.Steps = shownSteps(rec)
}

// shownSteps are the steps of an operation as events show them, nil for one without.
func shownSteps(rec *statefs.Record) [][]byte {
	if len(rec.Steps) == 0 {
		return nil
	}
	shown := make([][]byte, 0, len(rec.Steps))
	for i := range rec.Steps {
		s := &rec.Steps[i]
		data := stepJSON{
			ID: rec.ID, Step: s.Name, Status: s.Status, Number: i + 1, Total: len(rec.Steps), Run: s.Run, Retries: s.Retries, Optional: s.Optional,
			ErrorCode: s.ErrorCode, Error: s.ErrorMessage, Reason: s.Reason,
		}
		if s.Status != steps.Running {
			if took, begun := s.Took(rec.UpdatedAt); begun {
				seconds := took.Seconds()
				data.Seconds = &seconds
			}
		}
		line, err := json.Marshal(data)
		if err != nil {
			return nil // texts and numbers always encode
		}
		shown = append(shown, line)
	}
	return shown
}
