package statefs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// An optional step runs in parallel with the others and has its own files in ID.steps/: NAME.log,
// NAME.items.ndjson, NAME.exit and, while it runs, NAME.run/.

// stepFile returns the name of a file of an optional step, relative to the storage directory.
func stepFile(id ID, step, suffix string) string {
	return path.Join(dayFile(id, ".steps"), step+suffix)
}

// StepLogPath returns the path of the log of an optional step.
func (t *Tree) StepLogPath(id ID, step string) string {
	return filepath.Join(t.dir, stepFile(id, step, ".log"))
}

// StepExitName returns the name, relative to the storage directory, of the exit report of an optional step.
func StepExitName(id ID, step string) string { return stepFile(id, step, exitSuffix) }

// StepItemExitName is ItemExitName for an item of an optional step.
func StepItemExitName(id ID, step string, item int) string {
	return path.Join(stepFile(id, step, ".run"), fmt.Sprintf("item-%d%s", item, exitSuffix))
}

// ReadStepItems is ReadItems for an optional step.
func (t *Tree) ReadStepItems(id ID, step string, each func(line []byte) error) error {
	return t.readItemsOf(id, stepFile(id, step, itemsSuffix), each)
}

// MakeStepFolder makes the folder of the optional steps of an operation.
func (t *Tree) MakeStepFolder(id ID) error {
	if err := files.MakeFolder(filepath.Join(t.dir, dayFile(id, ".steps"))); err != nil {
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
