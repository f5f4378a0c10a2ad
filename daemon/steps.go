package daemon

import (
	"fmt"
	"os"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// A required step is a run of its operation (docs/adr/0019). The code for steps is in these files:
//
//	steps.go              which step a run executes, and its definition
//	step_next.go          what follows a step: the next step, a gate, the end
//	step_end.go           what the end of a run means for its step
//	step_actions.go       requests by people: retry, skip, set, approve, reject
//	optional_step.go      optional steps, which run beside and after the others
//	optional_step_end.go  how optional steps end

// progressNow returns the progress of an operation by its step statuses, which are newer than said,
// the last report of its run.
func progressNow(rec *statefs.Record, said statefs.Progress) *statefs.Progress {
	finished, all := steps.Progress(rec.Steps)
	total := int64(all)
	now := &statefs.Progress{Done: int64(finished), Total: &total, Phase: rec.Phase, At: said.At}
	if at := rec.CurrentStep(); at != nil && said.Step != nil && said.Step.Name == at.Name {
		now.Step = said.Step
	}
	return now
}

// noteMilestone sets the phase of an operation to the milestone that its steps have reached, also
// in its progress.
func noteMilestone(rec *statefs.Record, def *catalog.Definition) {
	phase := def.Phase(rec.Steps)
	if phase == statefs.FirstPhase && rec.FinishedAt != nil {
		return // the phase is that of the end
	}
	rec.Phase = phase
	if rec.Progress != nil && rec.Progress.Phase != rec.Phase {
		progress := *rec.Progress
		progress.Phase = rec.Phase
		rec.Progress = &progress
	}
}

// currentWork returns the definition by which an operation works now: that of its job, or that of
// its current step. A gate has none.
func (d *Daemon) currentWork(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, params, err := d.definition(rec)
	at := rec.CurrentStep()
	if err != nil || at == nil {
		return def, params, err
	}
	def, err = stepWork(def, at.Name)
	return def, params, err
}

func stepWork(def *catalog.Definition, name string) (*catalog.Definition, error) {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil, fmt.Errorf("job %s has no work for a step %q", def.Address(), name)
	}
	return step.Work, nil
}

// stepNumber returns the number of a step, from 1.
func stepNumber(list []steps.Step, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i + 1
		}
	}
	return 0
}

// stepLine is the log line with which a step begins.
func stepLine(rec *statefs.Record, at *steps.Step) string {
	line := fmt.Sprintf("== step %d / %d %s", stepNumber(rec.Steps, at.Name), len(rec.Steps), at.Name)
	if at.Retries > 0 {
		line += fmt.Sprintf(" (retry %d)", at.Retries)
	}
	return line
}

// logSize returns the size of a log, or 0 if it cannot be read.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // the log does not exist yet
	}
	return info.Size()
}
