package work

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// Work that cannot begin or end because this process has too many open files, or because the disk
// is full, has not failed: it waits until resources are free, as it does while it is paused. Its
// operation stays running and keeps its lane and limits; a cancel or a pause takes effect at once.

// retryEvery is the delay before something is tried again that failed for lack of resources.
const retryEvery = time.Second

// resourceExhausted reports whether an error goes away when other work ends or files are removed.
func resourceExhausted(err error) bool {
	return machine.OutOfFiles(err) || files.DiskFull(err)
}

// retryWhileExhausted calls do until it does not fail for lack of resources. It returns the error
// of the last call, joined with the reason if the work was ended before.
func (r *Run) retryWhileExhausted(ctx context.Context, do func() error) error {
	for said := false; ; said = true {
		err := do()
		if !resourceExhausted(err) {
			return err
		}
		if !said {
			r.host.Logger.Warn("work waits for room", "id", r.id, "error", err)
		}
		if ended := r.sleep(ctx, insideItem, retryEvery); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// openLog opens the log to which a command writes.
func (r *Run) openLog() (log *os.File, err error) {
	err = r.retryWhileExhausted(r.ctx, func() error {
		log, err = r.host.Owner.Output.AppendLog(r.id, r.optionalStepName())
		return err
	})
	return log, err
}

// keepItem writes the line of an item that has ended to the item file.
func (r *Run) keepItem(line []byte) {
	if err := r.retryWhileExhausted(r.ctx, func() error { return r.report.writeItem(line) }); err != nil {
		r.report.noteWriteError(err)
	}
}

// readResult is scratch.readResult with retries: the command has ended, and its result must not be
// lost.
func (r *Run) readResult(name string) (fields []field, err error) {
	err = r.retryWhileExhausted(r.ctx, func() error { fields, err = r.scratch.readResult(name); return err })
	return fields, err
}
