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

// queueQuota limits how many operations wait. A submit counts from the moment it is admitted, not
// only when a reconcile finds its operation, so concurrent submits cannot exceed the limit
// together.
type queueQuota struct {
	mu           sync.Mutex         // held while an admitted submit becomes a counted operation
	reservations []quotaReservation // admitted and not counted yet, oldest first
	reserved     int                // the sum of the reservations
	waiting      func() int         // the operations that are counted
}

type quotaReservation struct {
	count int
	at    time.Duration // the daemon's uptime
}

// reservationTimeout is when a submit that was admitted and never became an operation is taken to
// have failed.
const reservationTimeout = time.Minute

// reserve admits n operations, unless more than most would then wait (0 means no limit). It returns
// how many wait.
func (r *queueQuota) reserve(n, most int, ran time.Duration) (waiting int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.reservations) > 0 && ran-r.reservations[0].at >= reservationTimeout {
		r.reserved -= r.reservations[0].count
		r.reservations = r.reservations[1:]
	}
	waiting = r.waiting() + r.reserved
	if most > 0 && waiting+n > most {
		return waiting, false
	}
	r.reservations = append(r.reservations, quotaReservation{n, ran})
	r.reserved += n
	return waiting + n, true
}

// confirm calls count, which counts an operation as waiting. If the operation is fresh (admitted by
// reserve), it also releases the reservation.
func (r *queueQuota) confirm(fresh bool, count func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count()
	if !fresh || len(r.reservations) == 0 {
		return
	}
	r.reserved--
	if r.reservations[0].count--; r.reservations[0].count == 0 {
		r.reservations = r.reservations[1:]
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
func (d *Daemon) Admit(all []statefs.Submission) error {
	if err := d.Lanes.Check(all); err != nil {
		return err
	}
	if waiting, ok := d.queueQuota.reserve(len(all), d.config.MaxQueued, d.uptime()); !ok {
		text := fmt.Sprintf("The queue is full: %d operations wait, and max_queued is %d", waiting, d.config.MaxQueued)
		if len(all) > 1 {
			text += fmt.Sprintf("; these would be %d more", len(all))
		}
		return &submit.BusyError{Text: text, Full: true, RetryAfter: retryAfterFull}
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
