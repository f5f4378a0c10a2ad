package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/watch"
)

// recover brings the storage into order before anything is served. The watch is already running, so
// no change during the recovery is missed. The rest is done by reconciles: every ID that exists is
// enqueued.
func (d *Daemon) recover(ctx context.Context) error {
	if err := d.dir.Check(); err != nil {
		return err
	}
	if err := d.endStrays(ctx); err != nil {
		return err
	}
	d.heldCommands = d.workHost.HeldCommands()
	if err := d.recoverCutOff(ctx); err != nil {
		return err
	}
	listing, err := d.owner.List()
	if err != nil {
		return err
	}
	present := make(map[statefs.ID]bool)
	for _, e := range listing.Markers {
		present[e.ID] = true
	}
	lost, err := d.recoverLost(ctx, listing, present)
	if err != nil {
		return err
	}
	if err := d.endUnwantedCommands(d.heldCommands); err != nil {
		return err
	}
	if !d.keepersSettled() {
		d.awaitingKeepers.Store(&present)
	}
	for id, names := range listing.IDs() {
		d.reconcileQueue.enqueueNames(id, names|namesFromListing)
	}
	for _, rec := range lost {
		d.reconcileQueue.enqueue(rec.ID)
	}
	d.reconcileQueue.wait()
	addUnlisted(d, present)
	d.heldCommands = nil
	d.openHistoryQueries(ctx)
	if err := d.owner.SyncAll(); err != nil {
		return err
	}
	if d.config.Intake != nil {
		d.config.Intake.Ready()
	}
	return nil
}

// recoverCutOff completes what a crash cut off: submits of lists, requests, and deliveries.
func (d *Daemon) recoverCutOff(ctx context.Context) error {
	made, err := d.owner.Batches.Recover()
	if err != nil {
		return err
	}
	if made > 0 {
		d.logger.Info("interrupted batch submits completed", "made", made)
	}
	put, err := d.owner.Requests.Restore()
	if err != nil {
		return err
	}
	if put > 0 {
		d.logger.Info("requests of an earlier daemon are carried out again", "count", put)
	}
	return d.Deliveries.Recover(ctx)
}

// recoverLost handles the live records without a marker, and returns them. present are the IDs that have one.
func (d *Daemon) recoverLost(ctx context.Context, listing statefs.Listing, present map[statefs.ID]bool,
) ([]*statefs.Record, error) {
	safe, err := d.indexMissedEnds(ctx, present)
	if err != nil {
		return nil, err
	}
	lost, err := d.recordsWithoutMarker(present, safe)
	if err != nil {
		return nil, err
	}
	misnamed, err := d.findMisnamed(listing, present, lost)
	if err != nil {
		return nil, err
	}
	lost, back, err := confirmLost(ctx, d.owner, append(lost, misnamed...))
	if err != nil {
		return nil, err
	}
	return append(lost, back...), d.settleLost(lost, listing, len(present)) //nolint:contextcheck // must complete
}

// endStrays ends processes that commands of this storage have left and that no living keeper holds,
// for example after a keeper was killed with its daemon. Their operations start again, and nothing
// may run twice at once. One pass over all processes finds them by the mark of the storage, which
// only a daemon sets, and the ID of an operation.
func (d *Daemon) endStrays(ctx context.Context) error {
	var spare []int
	if d.config.Keepers != nil {
		spare = d.config.Keepers.PIDs()
	}
	began := time.Now()
	count, err := keeper.EndStrays(ctx, d.owner.Mark(), d.config.Grace, spare...)
	if count > 0 {
		d.workHost.StraysEndedAt = began
	}
	if errors.Is(err, errors.ErrUnsupported) {
		d.logger.Warn("processes of an earlier daemon cannot be found on this system")
		return nil
	}
	if err != nil {
		return fmt.Errorf("end what an earlier daemon left running: %w", err)
	}
	if count > 0 {
		d.logger.Warn("processes of an earlier daemon ended", "count", count)
	}
	return nil
}

// recordsWithoutMarker returns the live records that have no marker, and rewrites the cached list
// of live operations if that is safe. It reads only the records of IDs in that list,
// so a start costs time by the live operations, not by the history.
func (d *Daemon) recordsWithoutMarker(present map[statefs.ID]bool, safe bool) ([]*statefs.Record, error) {
	live, err := d.owner.Live.IDs()
	if err != nil {
		// The list is a cache: without it, only a marker that was removed while no daemon ran goes
		// unnoticed.
		d.logger.Warn("cached list of live operations rebuilt", "error", err)
		live = make(map[statefs.ID]bool)
	}
	var lost []*statefs.Record
	for id := range live {
		if present[id] {
			continue
		}
		rec, err := d.owner.ReadRecord(id)
		if err == nil && markerOf(rec).Live() {
			lost = append(lost, rec)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.logger.Error("record of an operation without a marker cannot be read", "id", id, "error", err)
		}
		delete(live, id)
	}
	if !safe {
		return lost, nil // the list names operations that the index of the history still lacks
	}
	if err := d.owner.Live.Set(live); files.DiskFull(err) {
		// A full disk must not keep the daemon from starting: operations can still be controlled.
		d.logger.Warn("cached list of live operations not rewritten", "error", err)
	} else if err != nil {
		return nil, err
	}
	return lost, nil
}

// addUnlisted adds the operations whose submit was cut off after the marker to the cached list of
// live operations. The reconciles have taken them over by then; the other markers are foreign, and
// in the list they would count as the daemon's.
func addUnlisted(d *Daemon, present map[statefs.ID]bool) {
	live, err := d.owner.Live.IDs()
	if err != nil {
		return // the list is a cache
	}
	var unlisted []statefs.ID
	for id := range present {
		if !live[id] && d.manages(id) {
			unlisted = append(unlisted, id)
		}
	}
	if len(unlisted) > 0 {
		d.owner.Live.Add(unlisted...)
	}
}

// confirmLost checks again after missingMarkerGrace, and returns the records whose marker is still
// missing and those whose marker is back. A process that is submitting may have written the record
// and not yet the marker.
func confirmLost(ctx context.Context, owner *statefs.Owner, lost []*statefs.Record,
) (still, back []*statefs.Record, err error) {
	if len(lost) == 0 {
		return nil, nil, nil
	}
	timer := time.NewTimer(missingMarkerGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	for _, rec := range lost {
		sight, err := owner.ObserveAll(rec.ID)
		if err != nil {
			return nil, nil, err
		}
		if len(sight.States) > 0 {
			back = append(back, rec)
			continue
		}
		still = append(still, rec)
	}
	return still, back, nil
}

// markerOf returns the state that the marker of a record must have; a terminal state means no
// marker.
func markerOf(rec *statefs.Record) statefs.State {
	switch {
	case rec.Trailing:
		return statefs.Trailing
	case rec.Next.Live():
		return rec.Next
	}
	return rec.Status
}

// settleLost puts back the markers that were renamed while no daemon ran, and ends the operations whose marker was
// removed. present is the number of markers that exist.
func (d *Daemon) settleLost(recs []*statefs.Record, listing statefs.Listing, present int) error {
	if len(recs) == 0 {
		return nil
	}
	lost, err := d.findLostMarkers(recs, listing)
	if err != nil {
		return err
	}
	accident := 0
	for i, effect := range decide.LostMarkers(lost, present) {
		rec, state, file := recs[i], markerOf(recs[i]), cmp.Or(lost[i].Renamed, lost[i].Under)
		switch effect { //nolint:exhaustive // the others are of requests
		case decide.Undo:
			err = d.commit(rec.ID, change{file: file, to: state}, renameBack)
		case decide.Restore:
			err = d.commit(rec.ID, change{rec: rec, to: state}, restoreMarker)
		default:
			err = d.cancelLost(rec)
		}
		switch {
		case err != nil:
			return fmt.Errorf("restore the marker of %s, or end it: %w", rec.ID, err)
		case file != "":
			d.counters.putBack.Add(1)
			d.logger.Warn("marker put back: it was renamed while no daemon ran", "id", rec.ID, "name", file, "state", state)
		case effect == decide.Restore:
			accident++
		}
	}
	if accident > 0 {
		d.logger.Warn("all markers were gone; they are restored from the records", "folder", d.owner.JobsDir(),
			"count", accident)
	}
	return nil
}

// cancelLost ends an operation whose marker was removed while no daemon ran.
func (d *Daemon) cancelLost(rec *statefs.Record) error {
	op := newOperation(rec)
	d.setState(op, rec.Status)
	if rec.Trailing {
		d.setState(op, statefs.Trailing)
	}
	if rec.Status == statefs.Running || rec.Status == statefs.Paused {
		d.logLine(op, decide.CancelLine(statefs.Running))
	}
	d.endHeldCommands(rec.ID)
	if !rec.Trailing {
		rec.Reason = "marker missing"
	}
	d.logger.Warn("cancelling an operation whose marker was removed while no daemon ran", "id", rec.ID)
	return d.finishAs(op, statefs.CauseMarkerMissing)
}

// sweepAndLog runs the periodic sweep. It logs an error only if it differs from that of the last
// sweep.
func (d *Daemon) sweepAndLog(ctx context.Context) {
	_, err := d.sweep(ctx, false)
	if _, gone := errors.AsType[*watch.GoneError](err); gone {
		return
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if err != nil && said != d.sweepError {
		d.logger.Error("sweep failed in part", "error", err)
	}
	d.sweepError = said
}

// sweep removes stray files, checks that the folder is still the one that is watched, and enqueues
// every live operation whose marker and memory differ: a missed event costs at most one sweep
// interval.
func (d *Daemon) sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	if err := d.dir.Check(); err != nil {
		d.fail(err)
		return nil, err
	}
	d.counters.sweeps.Add(1)
	d.Trigger.CheckClock()
	d.alarms.Rearm()
	if dryRun {
		return d.owner.PlanSweep(d.manages)
	}
	if made, err := d.owner.RestoreLock(); err != nil {
		d.logger.Error("the lock file is gone and cannot be made again", "error", err)
	} else if made {
		d.logger.Warn("the lock file was removed or replaced; it is made again: leave it alone while the daemon runs")
	}
	folders, foldersErr := d.owner.RestoreFolders()
	if _, gone := errors.AsType[*statefs.FolderGoneError](foldersErr); gone {
		d.fail(foldersErr)
		return nil, foldersErr
	}
	if len(folders) > 0 {
		d.logger.Warn("folders of the storage were removed; they are made again", "folders", folders)
	}
	made, markErr := d.owner.RestoreMark()
	if made {
		d.logger.Warn("storage.json was removed or replaced; it is made again: leave it alone")
	}
	var keysErr error
	if d.config.Intake != nil {
		keysErr = d.owner.Keys.Sweep(d.config.Intake.KeysSince())
	}
	findings, err := d.owner.Sweep(d.manages)
	d.logFindings(findings)
	d.publishSweep(findings)
	d.Lanes.ReconcileSoon()
	d.enqueueDifferences()
	d.Deliveries.ScanSoon()
	return findings, errors.Join(err, keysErr, markErr, foldersErr, d.trimLiveList(ctx))
}

func (d *Daemon) enqueueDifferences() {
	listing, err := d.owner.List()
	if err != nil {
		d.fail(err)
		return
	}
	seen := make(map[statefs.ID]bool, len(listing.Markers))
	for _, e := range listing.Markers {
		seen[e.ID] = true
		if d.stateOf(e.ID) != e.State {
			d.reconcileQueue.enqueue(e.ID)
		}
	}
	for _, e := range listing.Requests {
		if d.manages(e.ID) {
			d.reconcileQueue.enqueue(e.ID)
		}
	}
	for _, op := range d.allOperations() {
		if !seen[op.id()] {
			d.reconcileQueue.enqueue(op.id())
		}
		if !op.evicted.Load() && !d.owner.HasRecord(op.id()) {
			d.RecordUnreadable(op.id())
		}
	}
	for _, id := range d.admission.overdue() {
		d.reconcileQueue.enqueue(id)
	}
}
