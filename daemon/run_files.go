package daemon

import (
	"os"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// logPath is the file to which the work writes.
func (r *run) logPath() string {
	if r.optional {
		return r.owner.StepLogPath(r.id, r.step.name())
	}
	return r.owner.LogPath(r.id)
}

// readLog opens the file to which the work writes, for reading.
func (r *run) readLog() (*os.File, error) {
	if r.optional {
		return r.owner.OpenStepLog(r.id, steps.Find(r.step.list, r.step.name()))
	}
	return r.owner.OpenLog(r.id)
}

// exitName is the name of the exit report of a command of the run.
func (r *run) exitName(item int) string { return exitNameOf(r.id, r.optionalStepName(), item) }

// optionalStepName is the name of the optional step that the run executes, "" for any other run.
func (r *run) optionalStepName() string {
	if r.optional {
		return r.step.name()
	}
	return ""
}

// exitNameOf is the name of the exit report of a command; side is its optional step, "" for none.
func exitNameOf(id statefs.ID, side string, item int) string {
	switch {
	case side == "" && item == wholeRun:
		return statefs.ExitName(id)
	case side == "":
		return statefs.ItemExitName(id, item)
	case item == wholeRun:
		return statefs.StepExitName(id, side)
	}
	return statefs.StepItemExitName(id, side, item)
}

func (r *run) appendItems() (*os.File, error) {
	if r.optional {
		return r.owner.AppendStepItems(r.id, r.step.name())
	}
	return r.owner.AppendItems(r.id)
}

// eachItem calls each with every line of the item results from which the run resumes.
func (r *run) eachItem(each func(line []byte) error) error {
	if r.optional {
		return r.owner.ReadStepItems(r.id, r.step.name(), each)
	}
	return r.owner.ReadItems(r.id, each)
}
