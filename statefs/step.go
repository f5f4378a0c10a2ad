package statefs

import (
	"fmt"
	"os"
	"slices"
	"strings"

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
func (r *Record) Takes() (lane string, limits []string) { return r.TakesFor(r.CurrentStep()) }

// TakesFor is Takes for any step; nil is none.
func (r *Record) TakesFor(step *steps.Step) (lane string, limits []string) {
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

// MainRun is the number of the last run that was not one of an optional step.
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

// OpenStepLog opens the log in which the output of a step is, from LogFrom to LogTo of it: its own, or that of the operation. The error wraps
// fs.ErrNotExist when it does not exist yet.
func (t *Tree) OpenStepLog(id ID, step *steps.Step) (*os.File, error) {
	if step.Log == "" {
		return t.OpenLog(id)
	}
	if step.Log != step.Name+".log" || strings.Contains(step.Log, "/") {
		return nil, &CorruptError{dayFile(id, ".json"), fmt.Sprintf("its step %s has the log %q, which is none of its files", shorten(step.Name), shorten(step.Log))}
	}
	f, _, err := openRegular(t.root, stepFile(id, step.Name, ".log"))
	return f, err
}
