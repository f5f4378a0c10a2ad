package daemon

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs"
)

// isTransient reports whether a file could not be read or written but may be the next time, so that
// the work is not at fault.
func isTransient(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk && !errors.Is(err, fs.ErrNotExist)
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
