package statefs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs/files"
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
func (h *operations) OpenStepLog(id ID, step *steps.Step) (*os.File, error) {
	if step.Log == "" {
		return h.OpenLog(id)
	}
	if step.Log != step.Name+".log" || strings.Contains(step.Log, "/") {
		return nil, &CorruptError{dayFile(id, ".json"), fmt.Sprintf("its step %s has the log %q, which is none of its files",
			shorten(step.Name), shorten(step.Log))}
	}
	f, _, err := h.openRegular(stepFile(id, step.Name, ".log"))
	return f, err
}

// An optional step runs in parallel with the others and has its own files in ID.steps/: NAME.log,
// NAME.items.ndjson, NAME.exit and, while it runs, NAME.run/.

// stepFile returns the name of a file of an optional step, relative to the storage directory.
func stepFile(id ID, step, suffix string) string {
	return path.Join(dayFile(id, ".steps"), step+suffix)
}

// StepLogPath returns the path of the log of an optional step.
func (s *storage) StepLogPath(id ID, step string) string {
	return filepath.Join(s.dir, stepFile(id, step, ".log"))
}

// StepExitName returns the name, relative to the storage directory, of the exit report of an optional step.
func StepExitName(id ID, step string) string { return stepFile(id, step, exitSuffix) }

// StepItemExitName is ItemExitName for an item of an optional step.
func StepItemExitName(id ID, step string, item int) string {
	return path.Join(stepFile(id, step, ".run"), fmt.Sprintf("item-%d%s", item, exitSuffix))
}

// ReadStepItems is ReadItems for an optional step.
func (s *storage) ReadStepItems(id ID, step string, each func(line []byte) error) error {
	return s.readItemsOf(id, stepFile(id, step, itemsSuffix), each)
}

// MakeStepFolder makes the folder of the optional steps of an operation.
func (h *operations) MakeStepFolder(id ID) error {
	if err := files.MakeFolder(filepath.Join(h.dir, dayFile(id, ".steps"))); err != nil {
		return fmt.Errorf("make the folder of the optional steps of %s: %w", id, err)
	}
	return nil
}

// AppendStepLog opens the log of an optional step for appending.
func (o *Owner) AppendStepLog(id ID, step string) (*os.File, error) {
	return o.appendTo(o.StepLogPath(id, step))
}

// AppendStepItems is AppendItems for an optional step.
func (o *Owner) AppendStepItems(id ID, step string) (*os.File, error) {
	return o.appendItemsTo(filepath.Join(o.dir, stepFile(id, step, itemsSuffix)), id)
}
