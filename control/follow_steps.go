package control

import (
	"encoding/json"
	"os"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// A step changes without a change in jobs/, so a follower of steps also follows the record file. Each change replaces
// the file, which ends its subscription with a last wake, as with the progress file.

// followRecord starts to follow the record file.
func (f *follower) followRecord() {
	f.follows = true
	f.resubscribeRecord()
}

// resubscribeRecord subscribes to the current record file, and marks the operation as changed if the file was replaced.
func (f *follower) resubscribeRecord() {
	path := f.hub.tree.RecordPath(f.id)
	info, err := os.Stat(path)
	if err != nil || sameFile(info, f.record) {
		return // deleted or unchanged
	}
	f.record = info
	if f.unsubscribeRecord != nil {
		f.unsubscribeRecord()
		f.unsubscribeRecord = nil
	}
	if cancel, err := f.hub.logs.Subscribe(path, f.wake); err == nil {
		f.unsubscribeRecord = cancel
	}
	f.markChanged() // it may have been replaced before the subscription; without one, other wakes lead here too
}

func sameFile(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stepJSON is the data of a step event.
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
	// Seconds is the duration of the step's last run; nil while it runs.
	Seconds *float64 `json:"duration_seconds,omitempty"`
}

// updateSteps updates the steps in the snapshot, and follows the record file if the operation has steps.
func (f *follower) updateSteps(rec *statefs.Record) {
	if len(rec.Steps) == 0 {
		return
	}
	if !f.follows {
		f.followRecord()
	}
	f.snap.Steps = stepEvents(rec)
}

// stepEvents returns the steps of an operation as event data, nil without steps.
func stepEvents(rec *statefs.Record) [][]byte {
	if len(rec.Steps) == 0 {
		return nil
	}
	shown := make([][]byte, 0, len(rec.Steps))
	for i := range rec.Steps {
		s := &rec.Steps[i]
		data := stepJSON{
			ID: rec.ID, Step: s.Name, Status: s.Status, Number: i + 1, Total: len(rec.Steps), Run: s.Run, Retries: s.Retries,
			Optional:  s.Optional,
			ErrorCode: s.ErrorCode, Error: s.ErrorMessage, Reason: s.Reason,
		}
		if s.Status != steps.Running {
			if took, begun := s.Duration(rec.UpdatedAt); begun {
				seconds := took.Seconds()
				data.Seconds = &seconds
			}
		}
		line, err := json.Marshal(data)
		if err != nil {
			return nil // unreachable: strings and numbers always encode
		}
		shown = append(shown, line)
	}
	return shown
}
