package daemon

import (
	"fmt"
	"os"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// A required step is a run of its operation (docs/adr/0019). What is of steps alone is in these files:
//
//	steps.go      which step a run does, and its definition
//	step_next.go  what comes after a step: the next one, a gate, the end
//	step_end.go   what the end of a run makes of its step
//	step_acts.go  what persons do: skip, set, approve, reject, back to an earlier one
//	step_side.go  optional steps, which run beside and after the others; step_side_end.go: how they end

// stepOf is the step that a run does; its zero value is a run of a job without steps.
type stepOf struct {
	def *catalog.Step
	// list are the steps of the operation as they stood when the run began: what it may refer to.
	list []steps.Step
	// finished of all required steps were done then; phase is the milestone that was reached.
	finished, all int64
	phase         string
	// from is where its output begins in the log.
	from int64
}

func (s *stepOf) name() string {
	if s.def == nil {
		return ""
	}
	return s.def.Name
}

// progress turns the progress of a step into that of its operation.
func (s *stepOf) progress(p statefs.Progress) statefs.Progress {
	if s.def == nil {
		return p
	}
	return statefs.Progress{
		Done: s.finished, Total: &s.all, Phase: s.phase, At: p.At,
		Step: &statefs.StepProgress{Name: s.def.Name, Done: p.Done, Total: p.Total, Phase: p.Phase},
	}
}

// progressNow is the progress of an operation by how its steps stand, which is newer than what its run said.
func progressNow(rec *statefs.Record, said statefs.Progress) *statefs.Progress {
	finished, all := steps.Progress(rec.Steps)
	total := int64(all)
	now := &statefs.Progress{Done: int64(finished), Total: &total, Phase: rec.Phase, At: said.At}
	if at := rec.CurrentStep(); at != nil && said.Step != nil && said.Step.Name == at.Name {
		now.Step = said.Step
	}
	return now
}

// reached notes the milestone that the steps of an operation have reached, in its progress too.
func reached(rec *statefs.Record, def *catalog.Definition) {
	rec.Phase = def.Phase(rec.Steps)
	if rec.Progress != nil && rec.Progress.Phase != rec.Phase {
		progress := *rec.Progress
		progress.Phase = rec.Phase
		rec.Progress = &progress
	}
}

// own turns the progress of an operation into that of its step.
func (s *stepOf) own(p statefs.Progress) statefs.Progress {
	if s.def == nil {
		return p
	}
	if p.Step == nil || p.Step.Name != s.def.Name {
		return statefs.Progress{}
	}
	return statefs.Progress{Done: p.Step.Done, Total: p.Step.Total, Phase: p.Step.Phase, At: p.At}
}

// workOf returns by which definition an operation works now: that of its job, or that of the step at which it is. A gate has none.
func (d *Daemon) workOf(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, params, err := d.definition(rec)
	at := rec.CurrentStep()
	if err != nil || at == nil {
		return def, params, err
	}
	work, err := workOfStep(def, at.Name)
	return work, params, err
}

func workOfStep(def *catalog.Definition, name string) (*catalog.Definition, error) {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil, fmt.Errorf("job %s has no work for a step %q", def.Address(), name)
	}
	return step.Work, nil
}

// stepOfRun finds what the run of a step needs to know of it.
func (d *Daemon) stepOfRun(rec *statefs.Record, name string) (stepOf, error) {
	def, err := d.keptDefinition(rec)
	if err != nil {
		return stepOf{}, err
	}
	s := stepOf{def: def.Step(name), list: steps.Clone(rec.Steps), phase: def.Phase(rec.Steps)}
	if s.def == nil {
		return s, fmt.Errorf("job %s has no step %q", def.Address(), name)
	}
	finished, all := steps.Progress(rec.Steps)
	s.finished, s.all = int64(finished), int64(all)
	s.from = steps.Find(rec.Steps, name).LogFrom
	return s, nil
}

// placeOf is the number of a step among all, from 1.
func placeOf(list []steps.Step, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i + 1
		}
	}
	return 0
}

// stepLine is the line by which a step begins in the log.
func stepLine(rec *statefs.Record, at *steps.Step) string {
	line := fmt.Sprintf("== step %d / %d %s", placeOf(rec.Steps, at.Name), len(rec.Steps), at.Name)
	if at.Retries > 0 {
		line += fmt.Sprintf(" (retry %d)", at.Retries)
	}
	return line
}

// logSize is where the next byte of a log goes, as far as it can be told.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // it is not there yet
	}
	return info.Size()
}
