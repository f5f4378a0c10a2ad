package daemon

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// sweeper compares the whole storage with what the daemon knows, and repairs it.
type sweeper struct {
	*core
	publisher *publisher
	markers   *markers
	ends      *ends

	sweeping sync.Mutex // one sweep at a time
	// reportedFiles maps each file that the last sweep found and left alone to the reason. It is guarded by
	// sweeping. sweepError is the error of the last periodic sweep.
	reportedFiles map[string]string
	sweepError    string
}

// RecordUnreadable makes the daemon check a record that a reader could not use, and rewrite it if
// the operation is live. A wrong file in the place of the record of an ended one goes to corrupt/.
func (sw *sweeper) RecordUnreadable(id statefs.ID) {
	sw.atReconcile(id, func(op *operation) {
		if op != nil {
			sw.repairRecord(op)
			return
		}
		if _, err := sw.owner.State(id); !errors.Is(err, statefs.ErrNotLive) {
			return
		}
		if err := sw.owner.ClearRecord(id); err != nil {
			sw.logger.Error("a wrong file in the place of a record cannot be moved: remove it", "id", id, "error", err)
		}
	})
}

// repairRecord rewrites the record of a live operation if its file is missing or corrupt. A corrupt
// file is moved to corrupt/.
func (sw *sweeper) repairRecord(op *operation) {
	if op.activeState == nil || !op.rec.Status.Live() {
		return
	}
	_, err := sw.owner.ReadRecord(op.id())
	corrupt, unreadable := errors.AsType[*statefs.CorruptError](err)
	if !unreadable && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	sw.logger.Error("record unreadable, writing it again", "id", op.id(), "error", err)
	err = nil
	if unreadable {
		err = sw.owner.QuarantineRecord(op.id(), corrupt.Reason)
	}
	if err == nil {
		err = sw.commitRecord(op, op.rec)
	}
	if sw.failOnSyncError(err) != nil {
		sw.logger.Error("record not written, retrying at the next sweep", "id", op.id(), "error", err)
	}
}

// Sweep runs a sweep now. With dryRun it only returns what a sweep would do.
func (sw *sweeper) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	if err := sw.awaitReady(ctx); err != nil {
		return nil, err
	}
	return sw.sweep(ctx, dryRun)
}

// sweep removes stray files, checks that the watch is still on the folder of that path, and enqueues
// every live operation whose marker and memory differ: a missed event costs at most one sweep
// interval.
func (sw *sweeper) sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	sw.sweeping.Lock()
	defer sw.sweeping.Unlock()
	if sw.stopping.Load() {
		return nil, ErrStopped
	}
	if err := sw.markers.dir.Check(); err != nil {
		sw.fail(err)
		return nil, err
	}
	sw.counters.sweeps.Add(1)
	sw.ends.Trigger.CheckClock()
	sw.alarms.Rearm()
	if dryRun {
		return sw.owner.PlanSweep(sw.manages)
	}
	if made, err := sw.owner.RestoreLock(); err != nil {
		sw.logger.Error("the lock file is gone and cannot be made again", "error", err)
	} else if made {
		sw.logger.Warn("the lock file was removed or replaced; it is made again: leave it alone while the daemon runs")
	}
	folders, foldersErr := sw.owner.RestoreFolders()
	if _, gone := errors.AsType[*statefs.FolderGoneError](foldersErr); gone {
		sw.fail(foldersErr)
		return nil, foldersErr
	}
	if len(folders) > 0 {
		sw.logger.Warn("folders of the storage were removed; they are made again", "folders", folders)
	}
	made, markErr := sw.owner.RestoreMark()
	if made {
		sw.logger.Warn("storage.json was removed or replaced; it is made again: leave it alone")
	}
	keysErr := sw.owner.Keys.Sweep(sw.config.Intake.KeysSince())
	findings, err := sw.owner.Sweep(sw.manages)
	sw.logFindings(findings)
	sw.publisher.publishSweep(findings)
	sw.Lanes.ReconcileSoon()
	sw.enqueueDifferences()
	sw.ends.Deliveries.ScanSoon()
	err = errors.Join(err, keysErr, markErr, foldersErr)
	if sw.history.Sync(ctx) == nil { // the index must have what the list drops; the history reports the error
		err = errors.Join(err, sw.owner.Live.Trim(), sw.owner.Records.Trim())
	}
	return findings, err
}

// sweepAndLog runs the periodic sweep. It logs an error only if it differs from that of the last
// sweep.
func (sw *sweeper) sweepAndLog(ctx context.Context) {
	_, err := sw.sweep(ctx, false)
	if _, gone := errors.AsType[*watch.GoneError](err); gone {
		return
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if err != nil && said != sw.sweepError {
		sw.logger.Error("sweep failed in part", "error", err)
	}
	sw.sweepError = said
}

func (sw *sweeper) enqueueDifferences() {
	listing, err := sw.owner.List()
	if err != nil {
		sw.fail(err)
		return
	}
	seen := make(map[statefs.ID]bool, len(listing.Markers))
	for _, e := range listing.Markers {
		seen[e.ID] = true
		if sw.stateOf(e.ID) != e.State {
			sw.reconcileQueue.enqueue(e.ID)
		}
	}
	for _, e := range listing.Requests {
		if sw.manages(e.ID) {
			sw.reconcileQueue.enqueue(e.ID)
		}
	}
	for _, op := range sw.allOperations() {
		if !seen[op.id()] {
			sw.reconcileQueue.enqueue(op.id())
		}
		if !op.evicted.Load() && !sw.owner.HasRecord(op.id()) {
			sw.RecordUnreadable(op.id())
		}
	}
	for _, id := range sw.admission.overdue(sw.live.AllAnnounced()) {
		sw.reconcileQueue.enqueue(id)
	}
}

// countIgnored returns the number of names in jobs/ that the daemon ignores. It is that of the last
// listing, unless stray files came or went since.
func (sw *sweeper) countIgnored() uint64 {
	if sw.markers.strayFiles.uncounted.Swap(false) {
		if _, err := sw.owner.List(); err != nil {
			sw.markers.strayFiles.uncounted.Store(true) // the next caller of List meets the same error and reports it
		}
	}
	return sw.owner.Ignored()
}

// logFindings logs what a sweep found. A finding that it only reports is logged once, until the
// file is gone or the daemon restarts.
func (sw *sweeper) logFindings(findings []statefs.Finding) {
	reported := make(map[string]string)
	for _, f := range findings {
		if f.Action == statefs.SweepReportOnly {
			reported[f.File] = f.Reason
			if sw.reportedFiles[f.File] != f.Reason {
				sw.logger.Warn("ignored by the sweep", "file", f.File, "reason", f.Reason)
			}
			continue
		}
		sw.counters.swept.Add(1)
		if f.Action == statefs.SweepMoveToCorrupt {
			sw.logger.Warn("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
			continue
		}
		sw.logger.Info("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
	}
	sw.reportedFiles = reported
}
