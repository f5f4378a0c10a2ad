package daemon

import (
	"os"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// logPath is the file that the work writes to.
func (r *run) logPath() string {
	if r.side {
		return r.owner.StepLogPath(r.id, r.step.name())
	}
	return r.owner.LogPath(r.id)
}

// readLog opens the file that the work writes to, for reading.
func (r *run) readLog() (*os.File, error) {
	if r.side {
		return r.owner.OpenStepLog(r.id, steps.Find(r.step.list, r.step.name()))
	}
	return r.owner.OpenLog(r.id)
}

// exitName is the name of the exit report of a command of the run.
func (r *run) exitName(item int) string { return exitNameOf(r.id, r.sideName(), item) }

// sideName is the optional step that the run does, "" for any other work.
func (r *run) sideName() string {
	if r.side {
		return r.step.name()
	}
	return ""
}

// exitNameOf is the name of the exit report of a command; side is the optional step that it is of, "" for none.
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
	if r.side {
		return r.owner.AppendStepItems(r.id, r.step.name())
	}
	return r.owner.AppendItems(r.id)
}

// eachItem calls each with every line of the item results that the run goes on from.
func (r *run) eachItem(each func(line []byte) error) error {
	if r.side {
		return r.owner.ReadStepItems(r.id, r.step.name(), each)
	}
	return r.owner.ReadItems(r.id, each)
}
