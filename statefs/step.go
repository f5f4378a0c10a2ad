package statefs

import (
	"slices"

	"github.com/jobdir/jobdir/steps"
)

// CurrentStep returns the required step at which an operation is: the first one that is not done. It is nil when all are, and for a job without
// steps.
func (r *Record) CurrentStep() *steps.Step {
	for i := range r.Steps {
		if s := &r.Steps[i]; !s.Optional && !s.Status.Done() {
			return s
		}
	}
	return nil
}

// Takes returns the lane and the limits that the operation needs for the step at which it is: its own, unless the step says otherwise.
func (r *Record) Takes() (lane string, limits []string) {
	lane, limits = r.Lane, r.Limits
	step := r.CurrentStep()
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
