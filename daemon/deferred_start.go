package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// startRecordDelay is how long the first run of a handler lasts before its start is written into
// the record. Most shorter runs save that write: the record of their end contains the start.
const startRecordDelay = 100 * time.Millisecond

// deferredStarts queues the operations whose records do not contain the start of their first run
// yet, in the order in which they are due. An operation that ends earlier stays until then. It is
// safe for concurrent use.
type deferredStarts struct {
	enqueue func(statefs.ID) // called without the lock

	mu     sync.Mutex
	queue  []deferredStart
	timer  *time.Timer
	closed bool
}

type deferredStart struct {
	id statefs.ID
	at time.Time
}

// add enqueues an operation for a reconcile after startRecordDelay.
func (b *deferredStarts) add(id statefs.ID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.queue = append(b.queue, deferredStart{id, now})
	if len(b.queue) > 1 {
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(startRecordDelay, b.fire)
	} else {
		b.timer.Reset(startRecordDelay)
	}
}

// fire enqueues the operations whose delay has elapsed. The delay is constant, so the queue is in
// insertion order.
func (b *deferredStarts) fire() {
	now := time.Now()
	b.mu.Lock()
	due := 0
	for due < len(b.queue) && now.Sub(b.queue[due].at) >= startRecordDelay {
		due++
	}
	ids := b.queue[:due:due]
	if b.queue = b.queue[due:]; b.closed || len(b.queue) == 0 {
		b.queue = nil
	} else {
		b.timer.Reset(startRecordDelay - now.Sub(b.queue[0].at))
	}
	b.mu.Unlock()
	for _, e := range ids {
		b.enqueue(e.id)
	}
}

func (b *deferredStarts) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.queue = true, nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// defersStartRecord reports whether an operation starts without a change to its record. The marker
// alone then tells that the first run of a handler has started. A restart needs no more, since the
// work of a handler ends with its daemon. A command may outlive the daemon and is found by its run
// number, so its start is always recorded first.
func defersStartRecord(rec *statefs.Record, def *catalog.Definition) bool {
	return def.Work() == catalog.WorkHandler && len(rec.Steps) == 0 && statefs.StartUnrecorded(rec, statefs.Running)
}

// recordStart durably writes the start of the run into the record. After the next rename of the
// marker, only the record tells that the run has started.
func (d *Daemon) recordStart(op *operation) error {
	if op.unrecordedStart.IsZero() {
		return nil
	}
	op.copyProgress()
	if err := d.commitRecord(op.rec); err != nil {
		return err
	}
	op.unrecordedStart = time.Time{}
	return nil
}

// recordStartIfDue records the start before anything but the end of the run happens to the
// operation, and at the latest after startRecordDelay. A full disk does not prevent control of the
// operation; the write is deferred again.
func (d *Daemon) recordStartIfDue(op *operation, sight statefs.Observation) error {
	quiet := len(sight.Requests)+len(op.pendingRequests) == 0 && op.pausing == nil && op.cancelling == nil &&
		!op.unsaved && decide.Markers(op.state, sight.States) == decide.Kept
	if quiet && time.Since(op.unrecordedStart) < startRecordDelay {
		return nil
	}
	err := d.recordStart(op)
	if files.DiskFull(err) {
		op.unrecordedStart = time.Now()
		d.deferredStarts.add(op.id(), op.unrecordedStart)
		return nil
	}
	return err
}

// recoverStart durably records the first run of a handler that an earlier daemon started and only
// the marker tells of. It does so before the marker moves on.
func (d *Daemon) recoverStart(rec *statefs.Record, marker statefs.State) error {
	if !statefs.StartUnrecorded(rec, marker) {
		return nil
	}
	def, err := d.storedDefinition(rec)
	if err != nil || !defersStartRecord(rec, def) {
		return nil //nolint:nilerr // a job that cannot be read is reported when the operation starts
	}
	at, err := d.owner.MarkerMovedAt(rec.ID, marker)
	if err != nil {
		return errMoved
	}
	if err := rec.RecordStart(at); err != nil {
		return err
	}
	if err := d.commit(rec.ID, change{rec: rec}, writeRecord); files.DiskFull(err) {
		return nil // a full disk does not prevent the start
	} else if err != nil {
		return err
	}
	return d.commit(rec.ID, change{}, syncFiles)
}
