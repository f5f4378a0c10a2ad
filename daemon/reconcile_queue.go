package daemon

import (
	"iter"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// watchKey is the key by which the watch merges events of jobs/: an operation, one of its names, and whether
// the name left the folder.
type watchKey struct {
	id    statefs.ID
	names statefs.NameSet
	gone  bool
}

func (k watchKey) asGone() watchKey {
	k.gone = true
	return k
}

// isMarkerGone reports whether an event says that a marker left the folder.
func (k watchKey) isMarkerGone() bool { return k.gone && k.names&^statefs.AllMarkers == 0 }

// maxReconciles limits how many operations are reconciled concurrently. A reconcile may wait for
// the disk, and more concurrent syncs than this only wait longer.
const maxReconciles = 64

// retryInterval is the delay before an operation is reconciled again after an error that may go
// away, such as a full disk.
const retryInterval = time.Second

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
	direct  int // reconciles that run in the goroutine of their caller
	closed  bool
	group   sync.WaitGroup
	idle    *sync.Cond // on mu: there may be no worker left
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
		l.appendLocked(id)
	}
	l.pending[id] = w
}

// appendLocked adds an ID to the queue, for a worker.
func (l *reconcileQueue) appendLocked(id statefs.ID) {
	l.queue = append(l.queue, id)
	if l.workers < maxReconciles && !l.closed {
		l.workers++
		l.group.Go(l.work)
	}
}

// run is enqueueNames that reconciles in the calling goroutine, if no reconcile of the operation is pending.
func (l *reconcileQueue) run(id statefs.ID, names statefs.NameSet) {
	l.mu.Lock()
	if _, known := l.pending[id]; known || l.closed {
		l.mu.Unlock()
		l.enqueueNames(id, names)
		return
	}
	l.pending[id] = queuedReconcile{running: true}
	l.direct++
	l.group.Add(1)
	l.mu.Unlock()
	defer l.group.Done()
	l.reconcile(id, names)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(id)
	l.direct--
	l.idle.Broadcast()
}

// endLocked ends a reconcile, and queues the operation again if it was enqueued since.
func (l *reconcileQueue) endLocked(id statefs.ID) {
	if w := l.pending[id]; w.again {
		l.pending[id] = queuedReconcile{names: w.names}
		l.appendLocked(id)
	} else {
		delete(l.pending, id)
	}
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
		l.endLocked(id)
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

// all returns the IDs that are queued, delayed or being reconciled, with the names that may have changed; an ID may
// come twice. The queue is locked during the iteration.
func (l *reconcileQueue) all() iter.Seq2[statefs.ID, statefs.NameSet] {
	return func(yield func(statefs.ID, statefs.NameSet) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id, w := range l.pending {
			if w.running {
				w.names = statefs.AllNames
			}
			if !yield(id, w.names) {
				return
			}
		}
		for id := range l.delayed {
			if !yield(id, statefs.AllNames) {
				return
			}
		}
	}
}

// wait blocks until the queue is empty and no reconcile runs.
func (l *reconcileQueue) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.workers+l.direct > 0 {
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
