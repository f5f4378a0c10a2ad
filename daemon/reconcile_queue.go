package daemon

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/machine"
)

// maxReconciles limits how many operations are reconciled concurrently. A reconcile may wait for
// the disk, and more concurrent syncs than this only wait longer.
const maxReconciles = 64

// reconcileQueue runs reconcile for each enqueued operation, never twice at a time for the same
// one. Enqueueing an operation while its reconcile runs causes one more reconcile afterwards, so no
// later change is missed, and any number of calls before a reconcile cost one. The reconcile gets
// the union of the names that were enqueued.
type reconcileQueue struct {
	reconcile func(statefs.ID, statefs.NameSet)

	mu      sync.Mutex
	pending map[statefs.ID]queuedReconcile
	delayed map[statefs.ID]*delayedReconcile
	queue   []statefs.ID
	workers int
	closed  bool
	group   sync.WaitGroup
	idle    *sync.Cond // on mu: there may be no worker left
}

// immediateRetries is how many consecutive reconciles after a moved marker run without a delay.
const immediateRetries = 3

// moveDelay returns the delay before the next reconcile after n in a row that found the marker being moved. The
// first retries come immediately, since a rename takes microseconds. Then the delay doubles up to retryInterval,
// so that a rename which keeps failing does not keep a processor and the disk busy.
func moveDelay(n int) time.Duration {
	if n <= immediateRetries {
		return 0
	}
	return min(time.Millisecond<<min(n-immediateRetries-1, 16), retryInterval)
}

// queuedReconcile is a pending or running reconcile, and the names that were enqueued for it.
type queuedReconcile struct {
	names          statefs.NameSet
	running, again bool // again: it is to be run again
}

// delayedReconcile is a reconcile that is enqueued when its timer fires.
type delayedReconcile struct {
	due   time.Time
	timer *time.Timer
}

func newReconcileQueue(look func(statefs.ID, statefs.NameSet)) *reconcileQueue {
	l := &reconcileQueue{
		reconcile: look, pending: make(map[statefs.ID]queuedReconcile),
		delayed: make(map[statefs.ID]*delayedReconcile),
	}
	l.idle = sync.NewCond(&l.mu)
	return l
}

// enqueue requests a reconcile of an operation with all its names. It never blocks.
func (l *reconcileQueue) enqueue(id statefs.ID) { l.enqueueNames(id, statefs.AllNames) }

// enqueueNames requests a reconcile where only these names can have changed since the last one. A
// closed queue keeps the ID, and reconciles it no more.
func (l *reconcileQueue) enqueueNames(id statefs.ID, names statefs.NameSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, known := l.pending[id]
	w.names |= names
	w.again = w.running
	if !known {
		l.queue = append(l.queue, id)
		if l.workers < maxReconciles && !l.closed {
			l.workers++
			l.group.Go(l.work)
		}
	}
	l.pending[id] = w
}

// enqueueAfter requests a reconcile after a delay, because the last one failed. Each ID has at most
// one delayed reconcile, the earliest requested. Otherwise each failing reconcile that something
// else triggers would add one more per second for as long as the error lasts.
func (l *reconcileQueue) enqueueAfter(id statefs.ID, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Now().Add(wait)
	known := l.delayed[id]
	switch {
	case l.closed, known != nil && !due.Before(known.due):
	case known != nil:
		known.due = due
		known.timer.Reset(wait)
	default:
		l.delayed[id] = &delayedReconcile{due, time.AfterFunc(wait, func() {
			l.mu.Lock()
			delete(l.delayed, id)
			l.mu.Unlock()
			l.enqueue(id)
		})}
	}
}

// work reconciles until the queue is empty or closed.
func (l *reconcileQueue) work() {
	l.mu.Lock()
	for len(l.queue) > 0 && !l.closed {
		id := l.queue[0]
		l.queue = l.queue[1:]
		names := l.pending[id].names
		l.pending[id] = queuedReconcile{running: true}
		l.mu.Unlock()
		l.reconcile(id, names)
		l.mu.Lock()
		if w := l.pending[id]; w.again {
			l.pending[id] = queuedReconcile{names: w.names}
			l.queue = append(l.queue, id)
		} else {
			delete(l.pending, id)
		}
	}
	if len(l.queue) == 0 {
		l.queue = nil // frees the memory of a queue that was long
	}
	l.workers--
	l.idle.Broadcast()
	l.mu.Unlock()
}

// has reports whether an ID is queued or being reconciled.
func (l *reconcileQueue) has(id statefs.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.pending[id]
	return has
}

// addTo adds the IDs that are queued, delayed or being reconciled, with the names that may have changed.
func (l *reconcileQueue) addTo(changed map[statefs.ID]statefs.NameSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, w := range l.pending {
		if w.running {
			w.names = statefs.AllNames
		}
		changed[id] |= w.names
	}
	for id := range l.delayed {
		changed[id] = statefs.AllNames
	}
}

// wait blocks until the queue is empty and no reconcile runs.
func (l *reconcileQueue) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.workers > 0 {
		l.idle.Wait()
	}
}

// close takes no more IDs and waits for the running reconciles.
func (l *reconcileQueue) close() {
	l.mu.Lock()
	l.closed = true
	for id, r := range l.delayed {
		r.timer.Stop()
		delete(l.delayed, id)
	}
	l.mu.Unlock()
	l.group.Wait()
}

// submitListener hands what this process submits and requests to the daemon, without the round trip of
// an event. The event comes later and finds nothing to do. Until the daemon is ready, only events count.
type submitListener struct{ core *core }

// Expect implements statefs.SubmitListener.
func (l submitListener) Expect(recs ...*statefs.Record) { l.core.live.Announce(expectations(recs)...) }

// Announce implements statefs.SubmitListener. Lists and counts have the operation from now on.
func (l submitListener) Announce(rec *statefs.Record) {
	if isClosed(l.core.ready) {
		shown := (&live.Snapshot{ID: rec.ID, Place: live.Place{Standing: decide.Arriving}}).Next(rec, rec.Status)
		l.core.queueQuota.settle(func() { l.core.live.Announce(shown) }, rec)
		l.core.ownSubmits.set(rec.ID, true)
	}
}

// Withdraw implements statefs.SubmitListener.
func (l submitListener) Withdraw(recs ...*statefs.Record) {
	l.core.queueQuota.settle(func() {
		for _, rec := range recs {
			l.core.live.Withdraw(rec.ID)
			l.core.ownSubmits.take(rec.ID)
		}
	}, recs...)
	l.core.admission.admit()
}

// Created implements statefs.SubmitListener.
func (l submitListener) Created(name statefs.Name) {
	if isClosed(l.core.ready) {
		l.core.reconcileQueue.enqueueNames(name.ID, name.Bit())
	}
}

// failingEntry is a failing operation with a flag for whether its error was logged.
type failingEntry struct {
	api.FailingOperation
	logged bool
}

// failingOperations tracks the operations whose reconcile fails. Each error is logged once, and so
// is the recovery from it. Running out of file descriptors affects all operations at once and is
// logged once a minute.
type failingOperations struct {
	logger   *slog.Logger
	mu       sync.Mutex
	byID     map[statefs.ID]*failingEntry
	warnedAt time.Time // when running out of file descriptors was last logged
}

// failed records that a reconcile failed.
func (t *failingOperations) failed(id statefs.ID, err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byID[id]
	if known == nil {
		known = &failingEntry{FailingOperation: api.FailingOperation{ID: id, Since: now}}
		t.byID[id] = known
	}
	known.Tries++
	if known.Error == err.Error() {
		return
	}
	known.Error, known.logged = err.Error(), !machine.OutOfFiles(err)
	if !known.logged {
		if t.warnedAt.IsZero() || now.Sub(t.warnedAt) >= warnInterval {
			t.warnedAt = now
			t.logger.Warn("operations wait for free file descriptors, retrying every second", "id", id, "error", err)
		}
		return
	}
	t.logger.Error("reconcile failed, retrying every second", "id", id, "error", err)
}

// succeeded records that a reconcile succeeded.
func (t *failingOperations) succeeded(id statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byID[id]; known != nil {
		delete(t.byID, id)
		if !known.logged {
			return
		}
		t.logger.Info("reconcile succeeded after failures", "id", id, "tries", known.Tries, "since", known.Since.Format(statefs.StampFormat))
	}
}

// maxFailingListed limits the list: a single cause mostly affects all operations at once.
const maxFailingListed = 20

// list returns the operations that have failed longest, at most maxFailingListed.
func (t *failingOperations) list() []api.FailingOperation {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := slices.SortedFunc(maps.Values(t.byID), func(a, b *failingEntry) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	out := make([]api.FailingOperation, 0, min(len(found), maxFailingListed))
	for _, known := range found[:cap(out)] {
		out = append(out, known.FailingOperation)
	}
	return out
}
