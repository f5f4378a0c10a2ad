package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// Work that cannot be begun or ended because this process has too many files open, or the disk is full, is not at fault: it waits until there
// is room, as it does while it is paused. Its operation is running meanwhile, so its slot is kept; a cancel or a pause counts at once.

// scarce says that an error will be gone when something else has ended or was removed.
func scarce(err error) bool {
	return statefs.OutOfFiles(err) || statefs.Scarce(err)
}

// mends says that something could not be read or written and may be the next time, so that it is no fault of the work.
func mends(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk && !errors.Is(err, fs.ErrNotExist)
}

// patiently does something again and again until what it lacks is there. The error is that of the last time, or why the work is to end.
func (r *run) patiently(ctx context.Context, do func() error) error {
	for said := false; ; said = true {
		err := do()
		if !scarce(err) {
			return err
		}
		if !said {
			r.logger.Warn("work waits for room", "id", r.id, "error", err)
		}
		if ended := r.gate.sleep(ctx, insideItem, tryAgain); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// beginning counts the runs that begin and do not have all their descriptors yet. Each is counted on, so that many at once leave
// room for what is under way.
type beginning struct{ runs atomic.Int64 }

// one counts a run until done is called, for the first time, or returns why there is no room for it.
func (b *beginning) one(owner *statefs.Owner) (done func(), err error) {
	if err := owner.RoomForWork(int(b.runs.Add(1))); err != nil {
		b.runs.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { b.runs.Add(-1) }), nil
}

// openLog opens the log for a command to write to.
func (r *run) openLog() (log *os.File, err error) {
	err = r.patiently(r.ctx, func() error {
		if r.side {
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
	if err := r.patiently(r.ctx, func() error { return r.report.writeItem(line) }); err != nil {
		r.report.unwritten(err)
	}
}

// launch starts a command as soon as it may run.
func (r *run) launch(ctx context.Context, command *keeper.Command) (p keeper.Running, err error) {
	err = r.patiently(ctx, func() error { p, err = r.gate.start(ctx, r.starter, *command); return err })
	r.begun()
	return p, err
}

// readResult is scratch.readResult with patience: the command has ended, and what it left must not be lost.
func (r *run) readResult(name string) (fields []field, err error) {
	err = r.patiently(r.ctx, func() error { fields, err = r.scratch.readResult(name); return err })
	return fields, err
}
