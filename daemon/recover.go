package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// recover brings the storage into order before anything is served. The watch is in place already, so nothing that happens
// meanwhile is missed; the looks do the rest, since a start is nothing but a look at everything.
func (d *Daemon) recover(ctx context.Context) error {
	if err := d.dir.Check(); err != nil {
		return err
	}
	if err := d.endStrays(ctx); err != nil {
		return err
	}
	d.findHeld()
	made, err := d.owner.RecoverBatches()
	if err != nil {
		return err
	}
	if made > 0 {
		d.logger.Info("lists whose submit was cut off are completed", "made", made)
	}
	put, err := d.owner.Untake()
	if err != nil {
		return err
	}
	if put > 0 {
		d.logger.Info("requests of an earlier daemon are carried out again", "count", put)
	}
	if err := d.takeOutbox(ctx); err != nil {
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
	safe, err := d.catchUp(ctx, present)
	if err != nil {
		return err
	}
	lost, err := d.lostMarkers(present, safe)
	if err != nil {
		return err
	}
	misnamed, err := d.misnamed(listing, present, lost)
	if err != nil {
		return err
	}
	lost = append(lost, misnamed...)
	lost, back, err := d.stillLost(ctx, lost)
	if err != nil {
		return err
	}
	gone, err := d.restoreRenamed(lost, listing)
	if err != nil {
		return err
	}
	if err := d.treatLost(gone, len(present) == 0 && len(gone) == len(lost)); err != nil { //nolint:contextcheck // an end is carried to its end
		return err
	}
	if err := d.endUnwanted(); err != nil {
		return err
	}
	for id, names := range listing.IDs() {
		d.looks.wantNames(id, names|allListed)
	}
	for _, rec := range slices.Concat(lost, back) {
		d.looks.want(rec.ID)
	}
	d.looks.wait()
	d.held = nil
	d.openLists(ctx)
	if err := d.owner.SyncAll(); err != nil {
		return err
	}
	if d.config.Intake != nil {
		d.config.Intake.Ready()
	}
	return nil
}

// endStrays ends what commands of the storage have left behind that no living keeper has in hand, such as when a keeper was killed
// with its daemon: their operations start again, and nothing may run twice at once. One pass over the processes finds them all by the
// mark of the storage, which nobody but a daemon sets, and the ID of an operation.
func (d *Daemon) endStrays(ctx context.Context) error {
	var spare []int
	if d.config.Keepers != nil {
		spare = d.config.Keepers.PIDs()
	}
	began := time.Now()
	count, err := keeper.EndStrays(ctx, d.owner.Mark(), d.config.Grace, spare...)
	if count > 0 {
		d.straysSince = began
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

// lostMarkers returns the live records that have no marker, and writes the list of live operations anew when it is safe to. Only the IDs of that
// list are asked for, so a start costs what is live and not what has been.
func (d *Daemon) lostMarkers(present map[statefs.ID]bool, safe bool) ([]*statefs.Record, error) {
	live, err := d.owner.LiveList()
	if err != nil {
		// A cache: without it, only a marker that was removed meanwhile goes unnoticed.
		d.logger.Warn("the cached list of live operations is made anew", "error", err)
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
	for id := range present {
		if !live[id] {
			if _, err := d.owner.ReadRecord(id); errors.Is(err, fs.ErrNotExist) {
				continue // a foreign program's: were it in the list, it would count as ours
			}
		}
		live[id] = true
	}
	if !safe {
		return lost, nil // it names what the index of the history still lacks
	}
	if err := d.owner.SetLiveList(live); statefs.Scarce(err) {
		d.logger.Warn("the cached list of live operations stays as it is", "error", err) // on a full disk control must work
	} else if err != nil {
		return nil, err
	}
	return lost, nil
}

// stillLost looks a second time, and returns the records whose marker is still missing, and those whose marker is back: another process
// may be about to submit, and has written the record and not yet the marker.
func (d *Daemon) stillLost(ctx context.Context, lost []*statefs.Record) (still, back []*statefs.Record, err error) {
	if len(lost) == 0 {
		return nil, nil, nil
	}
	timer := time.NewTimer(secondLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	for _, rec := range lost {
		sight, err := d.owner.Look(rec.ID)
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

// markerOf is the state that the marker of an operation has by its record; one that is terminal has none.
func markerOf(rec *statefs.Record) statefs.State {
	switch {
	case rec.Trailing:
		return statefs.Trailing
	case rec.Next.Live():
		return rec.Next
	}
	return rec.Status
}

// treatLost ends operations whose marker was removed while no daemon ran. When every marker is gone, and there was more than
// one, nobody meant that: the markers are made again.
func (d *Daemon) treatLost(lost []*statefs.Record, all bool) error {
	if all && len(lost) > 1 {
		for _, rec := range lost {
			if err := d.owner.Restore(rec.ID, markerOf(rec), rec.CreatedAt); err != nil {
				return fmt.Errorf("restore the marker of %s: %w", rec.ID, err)
			}
		}
		d.logger.Warn("all markers were gone; they are restored from the records", "folder", d.owner.JobsDir(), "count", len(lost))
		return nil
	}
	for _, rec := range lost {
		op := newOperation(rec)
		op.set(rec.Status)
		if rec.Trailing {
			op.set(statefs.Trailing)
		}
		if rec.Status == statefs.Running || rec.Status == statefs.Paused {
			d.say(op, lineCancel)
		}
		d.endHeld(rec.ID)
		if !rec.Trailing {
			rec.Reason = "marker missing"
		}
		d.logger.Warn("no marker: its submit was cut off, or somebody removed the marker while no daemon ran; the operation is cancelled", "id", rec.ID)
		if err := d.finishAs(op, statefs.CauseMarkerMissing); err != nil {
			return err
		}
	}
	return nil
}

// sweepAndLog is the periodic sweep.
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

// sweep removes what belongs to nothing, checks that the folder is still the one that is watched, and wants every live operation
// looked at whose marker and memory differ: that a look was missed must cost a minute, never more.
func (d *Daemon) sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	if err := d.dir.Check(); err != nil {
		d.fail(err)
		return nil, err
	}
	d.counters.sweeps.Add(1)
	d.scheduler.wantAll() // the clock may have been set
	d.alarms.again()
	if dryRun {
		return d.owner.PlanSweep(d.manages)
	}
	if made, err := d.owner.KeepLock(); err != nil {
		d.logger.Error("the lock file is gone and cannot be made again", "error", err)
	} else if made {
		d.logger.Warn("the lock file was removed or replaced; it is made again: leave it alone while the daemon runs")
	}
	folders, foldersErr := d.owner.KeepFolders()
	if _, gone := errors.AsType[*statefs.FolderGoneError](foldersErr); gone {
		d.fail(foldersErr)
		return nil, foldersErr
	}
	if len(folders) > 0 {
		d.logger.Warn("folders of the storage were removed; they are made again", "folders", folders)
	}
	made, markErr := d.owner.KeepMark()
	if made {
		d.logger.Warn("storage.json was removed or replaced; it is made again: leave it alone")
	}
	var keysErr error
	if d.config.Intake != nil {
		keysErr = d.owner.SweepKeys(d.config.Intake.KeysSince())
	}
	findings, err := d.owner.Sweep(d.manages)
	d.report(findings)
	d.tellSweep(findings)
	d.lanes.alarms.again()
	d.lanes.want()
	d.wantDifferences()
	d.wantAllEntries()
	return findings, errors.Join(err, keysErr, markErr, foldersErr, d.trimLiveList(ctx))
}

func (d *Daemon) wantDifferences() {
	listing, err := d.owner.List()
	if err != nil {
		d.fail(err)
		return
	}
	seen := make(map[statefs.ID]bool, len(listing.Markers))
	for _, e := range listing.Markers {
		seen[e.ID] = true
		op := d.operation(e.ID)
		if op == nil || op.shown.Load() != e.State {
			d.looks.want(e.ID)
		}
	}
	for _, e := range listing.Requests {
		if d.manages(e.ID) {
			d.looks.want(e.ID)
		}
	}
	for _, op := range d.all() {
		if !seen[op.id()] {
			d.looks.want(op.id())
		}
	}
}
