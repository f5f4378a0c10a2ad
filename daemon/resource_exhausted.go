package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// Work that cannot begin or end because this process has too many open files, or because the disk
// is full, has not failed: it waits until resources are free, as it does while it is paused. Its
// operation stays running and keeps its lane and limits; a cancel or a pause takes effect at once.

// resourceExhausted reports whether an error goes away when other work ends or files are removed.
func resourceExhausted(err error) bool {
	return machine.OutOfFiles(err) || files.DiskFull(err)
}

// isTransient reports whether a file could not be read or written but may be the next time, so that
// the work is not at fault.
func isTransient(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk && !errors.Is(err, fs.ErrNotExist)
}

// retryWhileExhausted calls do until it does not fail for lack of resources. It returns the error
// of the last call, joined with the reason if the work was ended before.
func (r *run) retryWhileExhausted(ctx context.Context, do func() error) error {
	for said := false; ; said = true {
		err := do()
		if !resourceExhausted(err) {
			return err
		}
		if !said {
			r.logger.Warn("work waits for room", "id", r.id, "error", err)
		}
		if ended := r.gate.sleep(ctx, insideItem, retryInterval); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// fdBudget counts the runs that are starting and do not have all their descriptors yet. Each of
// them reserves descriptors, so that many concurrent starts leave enough for running work.
type fdBudget struct {
	owner   *statefs.Owner
	pending atomic.Int64
}

// reserveForWork reserves the descriptors of a run whose operation holds its lane and limits
// already, until done is called for the first time. The error reports why there are too few.
func (b *fdBudget) reserveForWork() (done func(), err error) {
	return b.reserve(b.owner.Descriptors.ForWork)
}

// reserveForStart is reserveForWork for a run that the queue is about to start.
func (b *fdBudget) reserveForStart() (done func(), err error) {
	return b.reserve(b.owner.Descriptors.ForStart)
}

func (b *fdBudget) reserve(room func(pieces int) error) (done func(), err error) {
	if err := room(int(b.pending.Add(1))); err != nil {
		b.pending.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { b.pending.Add(-1) }), nil
}

// openLog opens the log to which a command writes.
func (r *run) openLog() (log *os.File, err error) {
	err = r.retryWhileExhausted(r.ctx, func() error {
		if r.optional {
			log, err = r.owner.AppendStepLog(r.id, r.step.name())
		} else {
			log, err = r.owner.AppendLog(r.id)
		}
		return err
	})
	return log, err
}

// keepItem writes the line of an item that has ended to the item file.
func (r *run) keepItem(line []byte) {
	if err := r.retryWhileExhausted(r.ctx, func() error { return r.report.writeItem(line) }); err != nil {
		r.report.noteWriteError(err)
	}
}

// launch starts a command as soon as it may run.
func (r *run) launch(ctx context.Context, command *keeper.Command) (p keeper.Running, err error) {
	for ended := error(nil); ended == nil; ended = r.gate.sleep(ctx, insideItem, retryInterval) {
		err = r.retryWhileExhausted(ctx, func() error { p, err = r.gate.start(ctx, r.starter, *command); return err })
		if !errors.Is(err, keeper.ErrUnwanted) {
			break // on ErrUnwanted a cancel is about to be carried out, unless it is withdrawn
		}
	}
	r.onBegun()
	return p, err
}

// readResult is scratch.readResult with retries: the command has ended, and its result must not be
// lost.
func (r *run) readResult(name string) (fields []field, err error) {
	err = r.retryWhileExhausted(r.ctx, func() error { fields, err = r.scratch.readResult(name); return err })
	return fields, err
}
