package statefs

import (
	"encoding/json"
	"time"

	"github.com/jobdir/jobdir/statefs/steps"
)

// Progress is the content of ID.progress: the progress of the work and its last sign of life. It
// may be lost.
type Progress struct {
	Done  int64     `json:"done"`
	Total *int64    `json:"total"`
	Phase string    `json:"phase,omitempty"`
	At    time.Time `json:"at"`
	// Step is the progress of the current step of an operation with steps; Done and Total count
	// steps then. It is nil between two steps.
	Step *StepProgress `json:"step,omitempty"`
}

// StepProgress is the progress of one step.
type StepProgress struct {
	Name  string `json:"name"`
	Done  int64  `json:"done"`
	Total *int64 `json:"total"`
	Phase string `json:"phase,omitempty"`
}

// Fraction returns how much of the whole is done, from 0 to 1; a step at work counts in proportion
// to its progress. known is false without a total.
func (p *Progress) Fraction() (fraction float64, known bool) {
	if p.Total == nil || *p.Total <= 0 {
		return 0, false
	}
	done := float64(p.Done)
	if s := p.Step; s != nil && s.Total != nil && *s.Total > 0 && p.Done < *p.Total {
		done += min(float64(max(s.Done, 0))/float64(*s.Total), 1)
	}
	return min(max(done, 0)/float64(*p.Total), 1), true
}

// Same reports whether two progresses are equal except for their time.
func (p *Progress) Same(other *Progress) bool {
	if p.Done != other.Done || !sameTotal(p.Total, other.Total) || p.Phase != other.Phase ||
		(p.Step == nil) != (other.Step == nil) {
		return false
	}
	a, b := p.Step, other.Step
	return a == nil || a.Name == b.Name && a.Done == b.Done && sameTotal(a.Total, b.Total) && a.Phase == b.Phase
}

func sameTotal(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// ReadProgress returns the last progress of an operation. The error wraps fs.ErrNotExist if it
// never reported any.
func (t *Tree) ReadProgress(id ID) (Progress, error) {
	var p Progress
	name := dayFile(id, ".progress")
	data, err := t.readRegular(name, 1<<16)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, &CorruptError{name, err.Error()}
	}
	return p, nil
}

// Freshen copies the progress and the last sign of life from ID.progress if they are newer than the
// record. The record of a finished operation is never older.
func (t *Tree) Freshen(rec *Record) {
	if rec.Status.Terminal() {
		return
	}
	defer rec.keepToSteps()
	p, err := t.ReadProgress(rec.ID)
	if err != nil {
		return // the file may be lost
	}
	// A heartbeat in the future dates from before the clock was set back, and so the file is newer.
	if known := rec.HeartbeatAt; known != nil && !p.At.After(*known) && !known.After(t.options.Now()) {
		return
	}
	rec.Progress, rec.HeartbeatAt = &p, &p.At
}

// keepToSteps corrects the progress of an operation with steps from its record: the work may have
// reported it before its step ended.
func (r *Record) keepToSteps() {
	if len(r.Steps) == 0 || r.Progress == nil {
		return
	}
	done, all := steps.Progress(r.Steps)
	total := int64(all)
	p := *r.Progress
	p.Done, p.Total = int64(done), &total
	if r.Phase != "" {
		p.Phase = r.Phase
	}
	if at := r.CurrentStep(); p.Step != nil && (at == nil || at.Name != p.Step.Name || at.Status == steps.Pending) {
		p.Step = nil
	}
	r.Progress = &p
}
