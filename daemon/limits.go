package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// queueQuota limits how many operations wait. A submit counts from the moment it is admitted, so that concurrent
// submits cannot exceed the limit together.
type queueQuota struct {
	mu sync.Mutex // held while an admitted draft enters the table, which then counts it
	// admitted holds the drafts that were admitted, until they are announced or withdrawn.
	admitted map[statefs.ID]struct{}
}

// settle calls count, which counts drafts as waiting or gives them up, and releases their places.
func (q *queueQuota) settle(count func(), drafts ...*statefs.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	count()
	for _, rec := range drafts {
		delete(q.admitted, rec.ID)
	}
	if len(q.admitted) == 0 {
		q.admitted = nil // an emptied map keeps the memory of a long list
	}
}

// countWaiting returns how many operations wait for their time, their turn or their next attempt:
// all that will start by themselves. Operations that a person must release (paused, failed_manual)
// do not count.
func (d *Daemon) countWaiting() int {
	states := d.States()
	return states[statefs.Queued] + states[statefs.Scheduled] + states[statefs.FailedRetryable]
}

// retryAfterFull is when to retry after the queue was full.
const retryAfterFull = 5 * time.Second

// Admit refuses new operations; a list is refused as a whole. It returns a *submit.OptionError for
// an unknown lane or limit, and a *submit.BusyError for a closed lane or a full queue.
func (d *Daemon) Admit(drafts []*statefs.Record) error {
	if err := d.Lanes.Check(drafts); err != nil {
		return err
	}
	q, most := &d.queueQuota, d.config.MaxQueued
	if most == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting := d.countWaiting() + len(q.admitted); waiting+len(drafts) > most {
		text := fmt.Sprintf("The queue is full: %d operations wait, and max_queued is %d", waiting, most)
		if len(drafts) > 1 {
			text += fmt.Sprintf("; these would be %d more", len(drafts))
		}
		return &submit.BusyError{Text: text, Full: true, RetryAfter: retryAfterFull}
	}
	if q.admitted == nil {
		q.admitted = make(map[statefs.ID]struct{}, len(drafts))
	}
	for _, rec := range drafts {
		q.admitted[rec.ID] = struct{}{}
	}
	return nil
}

// isTransient reports whether a file could not be read or written but may be the next time, so that
// the work is not at fault.
func isTransient(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk && !errors.Is(err, fs.ErrNotExist)
}

// fdBudget counts the runs that are starting and do not have all their descriptors yet. Each of
// them reserves descriptors, so that many concurrent starts leave enough for running work.
type fdBudget struct{ pending atomic.Int64 }

// reserve reserves the descriptors of a run, until done is called for the first time. The error, which is that of
// room, reports why there are too few.
func (b *fdBudget) reserve(room func(runs int) error) (done func(), err error) {
	if err := room(int(b.pending.Add(1))); err != nil {
		b.pending.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { b.pending.Add(-1) }), nil
}
