package statefs

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs/steps"
)

// CurrentStep returns the first required step that is not done. It is nil if all are done, and for
// a job without steps.
func (r *Record) CurrentStep() *steps.Step {
	for i := range r.Steps {
		if s := &r.Steps[i]; !s.Optional && !s.Status.Done() {
			return s
		}
	}
	return nil
}

// FailedOptionalStep returns the first optional step that waits for a person, nil if there is none.
func (r *Record) FailedOptionalStep() *steps.Step {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Optional && s.Status == steps.FailedManual {
			return s
		}
	}
	return nil
}

// LaneAndLimits returns the lane and the limits for the current step: those of the operation,
// unless the step has its own.
func (r *Record) LaneAndLimits() (lane string, limits []string) {
	return r.LaneAndLimitsFor(r.CurrentStep())
}

// LaneAndLimitsFor is LaneAndLimits for any step; nil is none.
func (r *Record) LaneAndLimitsFor(step *steps.Step) (lane string, limits []string) {
	lane, limits = r.Lane, r.Limits
	if step == nil {
		return lane, limits
	}
	if step.Lane != "" {
		lane = step.Lane
	}
	for _, name := range step.Limits {
		if !slices.Contains(limits, name) {
			limits = append(slices.Clone(limits), name)
		}
	}
	return lane, limits
}

// MainRun returns the number of the last run that was not of an optional step.
func (r *Record) MainRun() int {
	if len(r.Steps) == 0 {
		return r.Run
	}
	run := 0
	for i := range r.Steps {
		if !r.Steps[i].Optional {
			run = max(run, r.Steps[i].Run)
		}
	}
	return run
}

// OpenStepLog opens the log that contains the output of a step, between LogFrom and LogTo: the
// step's own log, or that of the operation. The error wraps fs.ErrNotExist if it does not exist
// yet.
func (t *Tree) OpenStepLog(id ID, step *steps.Step) (*os.File, error) {
	if step.Log == "" {
		return t.OpenLog(id)
	}
	if step.Log != step.Name+".log" || strings.Contains(step.Log, "/") {
		return nil, &CorruptError{dayFile(id, ".json"), fmt.Sprintf("its step %s has the log %q, which is none of its files",
			shorten(step.Name), shorten(step.Log))}
	}
	f, _, err := t.openRegular(stepFile(id, step.Name, ".log"))
	return f, err
}
