package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/statefs"
)

// evict drops the in-memory state of an operation that only waits. The state is on disk too, and a
// hundred thousand waiting operations would fill the memory. The next reconcile reads the record
// again.
func (op *operation) evict() {
	a := op.activeState
	quiet := a.run == nil && a.finishedRun == nil && len(a.optionalSteps) == 0 && len(a.waitingSteps) == 0 &&
		a.log == nil && !a.unsaved && a.pausing == nil && a.cancelling == nil &&
		len(a.pendingRequests) == 0 && len(a.doneRequests) == 0 && a.feed == feedNumbers{} && a.missing == missingMarker{} &&
		!a.deadlines.anySet()
	if quiet && a.rec.Status == op.state && a.rec.Next == "" {
		op.activeState = nil
		op.evicted.Store(true)
	}
}

// activate reads the record of an evicted operation. If the record is damaged, removed or of a
// newer version, activate untracks the operation: the reconcile then finds a marker that the daemon
// does not manage, and judges it as any other.
func (d *Daemon) activate(id statefs.ID) error {
	op := d.operation(id)
	if op == nil || op.activeState != nil {
		return nil
	}
	rec, err := d.owner.ReadRecord(id)
	if err == nil {
		op.activeState = newActiveState(rec)
		op.evicted.Store(false)
		return nil
	}
	if _, corrupt := errors.AsType[*statefs.CorruptError](err); !corrupt && !errors.Is(err, statefs.ErrNewerVersion) &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.logger.Error("the record of a waiting operation was damaged or removed by another program", "id", id, "error", err)
	d.mu.Lock()
	if d.damaged == nil {
		d.damaged = make(map[statefs.ID]damagedRecord)
	}
	d.damaged[id] = damagedRecord{op.shown, err}
	d.mu.Unlock()
	op.activeState = newActiveState(statefs.UnknownRecord(id, d.owner.Now()))
	d.untrack(op)
	d.admission.syncQueue(op, false)
	return nil
}
