package daemon

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/watch"
)

// reconciler compares the files of one ID with what the daemon knows, and lets the other parts act on the difference.
type reconciler struct {
	*core
	publisher *publisher
	waits     *waits
	markers   *markers
	ends      *ends
	starts    *starts
	optional  *optional
	decisions *decisions

	// failing tracks the operations whose reconcile currently fails.
	failing failingOperations
	// moves counts, for each ID, the consecutive reconciles that found the marker being moved.
	moves lockedMap[statefs.ID, int]
	// batchMu serializes the lookups of batches that another process submits.
	batchMu sync.Mutex
}

// reconcileID compares what exists on disk of one operation with what the daemon knows, and acts.
// Nothing else changes an operation, and at most one reconcile runs per ID.
func (rc *reconciler) reconcileID(id statefs.ID, names statefs.NameSet) {
	defer rc.checkDrained()
	op := rc.operation(id)
	if rc.markers.isKnown(id, op, names) {
		rc.admission.reconciled(id, nil)
		return
	}
	defer rc.admission.admit() // also if it ends early
	rc.runReconcile(id, func() error {
		op, err := rc.activate(op)
		if err != nil {
			return err
		}
		for _, fn := range rc.pendingCallbacks.take(id) {
			fn(op)
		}
		sight, err := rc.markers.observe(id, op, names)
		if err != nil {
			return err
		}
		if len(sight.Irregular) > 0 {
			rc.markers.strayFiles.uncounted.Store(true)
		}
		if op == nil {
			var isNew bool
			isNew, err = rc.adopt(id, sight)
			if op = rc.operation(id); op == nil {
				rc.noteUnmanaged(id, sight, err)
				rc.admission.reconciled(id, err)
				return err
			}
			op.isNew = isNew
			op.noteObservation(sight)
			if err != nil || !op.hasOnlyMarker(sight) {
				rc.reconcileQueue.enqueue(id) // the marker has changed since the observation
				return err
			}
			sight.Irregular = nil // adopt has moved these to corrupt/
		}
		kept := op.hasOnlyMarker(sight)
		if err = rc.act(op, sight); !kept {
			rc.filesChanged(id) // the marker may be back where it was
		}
		rc.publishOnFullDisk(op, err)
		rc.noteNames(op)
		rc.settleRequests(op)
		if op.managed && op.missing != (missingMarker{}) {
			rc.unsettledIDs.set(id, "")
		} else {
			rc.unsettledIDs.take(id)
		}
		if op.managed {
			rc.settlePlace(op, err)
		}
		rc.admission.reconciled(id, err)
		rc.waits.publishWaiting(op)
		if op.managed {
			rc.setAlarm(op)
		}
		if op.run == nil && op.finishedRun == nil {
			rc.closeLog(op) // an operation that only waits must not use up the open files
		}
		if err == nil && op.managed {
			op.evict()
		}
		return err
	})
}

// act begins the work of an operation that started with its submit, or decides about what was observed.
func (rc *reconciler) act(op *operation, sight statefs.Observation) error {
	if op.run == nil && op.rec.Run == 1 {
		begun, err := rc.starts.beginSubmitted(op)
		if err != nil || begun && len(sight.Requests) == 0 {
			return err // if the work has ended already, the submit does not wait for the record of that
		}
	}
	return rc.decisions.reconcile(op, sight)
}

// publishOnFullDisk publishes the transitions of a reconcile that a full disk kept from writing the record. Clients
// that wait for them get their answer too, with "durable": false.
func (rc *reconciler) publishOnFullDisk(op *operation, err error) {
	if files.DiskFull(err) && op.managed {
		rc.committed(op)
	}
}

// runReconcile handles the error of a reconcile: a failing disk ends the daemon, a marker that was
// moved during the reconcile means another reconcile, and any other error is reported and retried.
func (rc *reconciler) runReconcile(id statefs.ID, look func() error) {
	err := look()
	var sync *files.SyncError
	var gone *watch.GoneError
	var folder *statefs.FolderGoneError
	if !errors.Is(err, errMoved) {
		rc.moves.take(id)
	}
	switch {
	case err == nil:
		rc.failing.succeeded(id)
	case errors.As(err, &sync), errors.As(err, &gone), errors.As(err, &folder), errors.Is(err, syscall.EIO),
		errors.Is(err, syscall.EROFS):
		rc.fail(err)
	case errors.Is(err, errNotReady):
		rc.reconcileQueue.enqueueAfter(id, retryInterval)
	case errors.Is(err, errMoved):
		if wait := moveDelay(rc.moves.update(id, func(n int) int { return n + 1 })); wait > 0 {
			rc.reconcileQueue.enqueueAfter(id, wait)
		} else {
			rc.reconcileQueue.enqueue(id)
		}
	default:
		rc.counters.failedReconciles.Add(1)
		rc.failing.failed(id, err, time.Now())
		if !rc.stopping.Load() {
			rc.reconcileQueue.enqueueAfter(id, retryInterval)
		}
	}
}

// noteUnmanaged notes what a reconcile found of an ID that the daemon does not manage after it.
func (rc *reconciler) noteUnmanaged(id statefs.ID, sight statefs.Observation, err error) {
	rc.filesChanged(id)
	if w, is := rc.admission.submitted.get(id); is && !w.marked {
		return // its marker is about to be made
	}
	if err == nil && !rc.stopping.Load() {
		rc.admission.dropSubmitted(id)
		rc.live.Withdraw(id)
		rc.settleUnmanaged(id)
	}
	if err != nil && len(sight.States) > 0 { // nothing carries out its requests
		rc.waiters.Settle(id, func(r effect.Request) (effect.Outcome, bool) {
			return effect.Outcome{State: sight.States[0]}, r.Made && !rc.owner.RequestPending(id, r.Action)
		})
	}
	switch {
	case len(sight.States)+len(sight.Requests) == 0:
		rc.unsettledIDs.take(id)
	case len(sight.States) == 1 && err == nil && !rc.stopping.Load():
		rc.unsettledIDs.set(id, sight.States[0])
	default:
		rc.unsettledIDs.set(id, "") // it may be ours
	}
}

// expectBatch expects all operations of a list that another process submits, when the daemon takes
// over the first of them. It reads them from the list's file. If that file is gone, all operations
// of the list are already visible.
func (rc *reconciler) expectBatch(rec *statefs.Record) error {
	if rec.Batch == nil || rec.ID.PID() == machine.PID || rec.Starts > 0 || !rc.isReady() {
		return nil
	}
	rc.batchMu.Lock()
	defer rc.batchMu.Unlock()
	if rc.live.Announced(rec.ID) {
		return nil
	}
	ids, err := rc.owner.Batches.IDs(*rec.Batch)
	var recs []*statefs.Record
	for _, id := range ids {
		if !rc.manages(id) {
			recs = append(recs, &statefs.Record{ID: id})
		}
	}
	if len(recs) > 1 {
		rc.live.Announce(expectations(recs)...)
	}
	return err
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

// failingOperations tracks the operations whose reconcile fails. Each error is logged once, and so
// is the recovery from it. Running out of file descriptors affects all operations at once and is
// logged once a minute.
type failingOperations struct {
	logger   *slog.Logger
	mu       sync.Mutex
	byID     map[statefs.ID]*failingEntry
	warnedAt time.Time // when running out of file descriptors was last logged
}

// failingEntry is a failing operation with a flag for whether its error was logged.
type failingEntry struct {
	api.FailingOperation
	logged bool
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
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID.String(), b.ID.String()))
	})
	out := make([]api.FailingOperation, 0, min(len(found), maxFailingListed))
	for _, known := range found[:cap(out)] {
		out = append(out, known.FailingOperation)
	}
	return out
}
