package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/watch"
)

// sweeper compares the whole storage with what the daemon knows, and repairs it.
type sweeper struct {
	*core
	publisher *publisher
	markers   *markers
	ends      *ends
	retention *retention

	sweeping sync.Mutex // one sweep at a time
	// reportedFiles maps each file that the last sweep found and left alone to the reason. It is guarded by
	// sweeping. sweepError is the error of the last periodic sweep.
	reportedFiles map[string]string
	sweepError    string
}

// counters holds counts since the daemon started.
type counters struct {
	transitions, requests, finished atomic.Uint64
	rescans, sweeps, swept, putBack atomic.Uint64
	failedReconciles                atomic.Uint64
}

// Health returns the health report. It may be called at any time. It also checks whether the
// watched folder is still the one in the storage, because some ways to lose it cause no event, and
// ends the daemon if it is not.
func (d *Daemon) Health() api.Health {
	h := api.Health{
		Draining: d.draining(), Watch: api.WatchMode(d.dir.Mode()), Live: d.States(),
		FailingOperations: d.failing.list(),
	}
	if d.config.Keepers != nil {
		for _, s := range d.config.Keepers.Silent() {
			h.FailingOperations = append(h.FailingOperations,
				api.FailingOperation{Error: fmt.Sprintf("keeper %d (PID %d) does not answer: continue it (kill -CONT %d) or kill it",
					s.Keeper, s.PID, s.PID), Since: s.Since, Tries: 1})
		}
	}
	h.Ready = isClosed(d.ready) && !d.stopping.Load()
	if gone, is := errors.AsType[*watch.GoneError](d.dir.Check()); is && h.Ready {
		h.Ready = false
		d.fail(gone)
	}
	stats := d.dir.Stats()
	h.Counters = map[string]uint64{
		"transitions": d.counters.transitions.Load(), "requests": d.counters.requests.Load(),
		"finished": d.counters.finished.Load(),
		"rescans":  d.counters.rescans.Load(), "sweeps": d.counters.sweeps.Load(), "swept": d.counters.swept.Load(),
		"put_back": d.counters.putBack.Load(), "failed_looks": d.counters.failedReconciles.Load(),
		"events": stats.Events, "unknown_names": stats.Unknown, "overflows": stats.Overflows,
		"ignored_files": d.countIgnored(),
	}
	return h
}

// DiskFailed ends the daemon because of a disk error that occurred outside of it, such as a failed
// sync during a submit. After such an error the contents of the disk are unknown.
func (d *Daemon) DiskFailed(err error) { d.fail(err) }

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
	if unreadable {
		err = sw.owner.QuarantineRecord(op.id(), corrupt.Reason)
	} else {
		err = nil
	}
	if err == nil {
		err = sw.commitRecord(op, op.rec)
	}
	if sw.failOnSyncError(err) != nil {
		sw.logger.Error("record not written, retrying at the next sweep", "id", op.id(), "error", err)
	}
}

// ErrStopped means that the daemon no longer runs.
var ErrStopped = errors.New("the daemon has stopped")

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
	return findings, errors.Join(err, keysErr, markErr, foldersErr, sw.retention.trimLiveList(ctx))
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
