package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// recovery brings the storage in order at a start.
type recovery struct {
	*core
	markers *markers
	ends    *ends
	starts  *starts
}

// recover brings the storage into order before anything is served. The watch is already running, so
// no change during the recovery is missed. The rest is done by reconciles: every ID that exists is
// enqueued.
func (rv *recovery) recover(ctx context.Context) error {
	if err := rv.markers.dir.Check(); err != nil {
		return err
	}
	if err := rv.endStrays(ctx); err != nil {
		return err
	}
	rv.starts.heldCommands = rv.starts.workHost.HeldCommands()
	if err := rv.recoverCutOff(ctx); err != nil {
		return err
	}
	listing, err := rv.owner.List()
	if err != nil {
		return err
	}
	present := make(map[statefs.ID]bool)
	for _, e := range listing.Markers {
		present[e.ID] = true
	}
	lost, err := rv.recoverLost(ctx, listing, present)
	if err != nil {
		return err
	}
	if err := rv.endUnwantedCommands(rv.starts.heldCommands); err != nil {
		return err
	}
	if !rv.starts.keepersSettled() {
		rv.starts.awaitingKeepers.Store(&present)
	}
	for id, names := range listing.IDs() {
		rv.reconcileQueue.enqueueNames(id, names|namesFromListing)
	}
	for _, rec := range lost {
		rv.reconcileQueue.enqueue(rec.ID)
	}
	rv.reconcileQueue.wait()
	rv.addUnlisted(present)
	rv.starts.heldCommands = nil
	rv.openHistoryQueries(ctx)
	return rv.owner.SyncAll()
}

// recoverCutOff completes what a crash cut off: submits of lists, requests, and deliveries.
func (rv *recovery) recoverCutOff(ctx context.Context) error {
	made, err := rv.owner.Batches.Recover()
	if err != nil {
		return err
	}
	if made > 0 {
		rv.logger.Info("interrupted batch submits completed", "made", made)
	}
	put, err := rv.owner.Requests.Restore()
	if err != nil {
		return err
	}
	if put > 0 {
		rv.logger.Info("requests of an earlier daemon are carried out again", "count", put)
	}
	return rv.ends.Deliveries.Recover(ctx)
}

// recoverLost handles the live records without a marker, and returns them. present are the IDs that have one.
func (rv *recovery) recoverLost(ctx context.Context, listing statefs.Listing, present map[statefs.ID]bool,
) ([]*statefs.Record, error) {
	safe, err := rv.indexMissedEnds(ctx, present)
	if err != nil {
		return nil, err
	}
	lost, err := rv.recordsWithoutMarker(present, safe)
	if err != nil {
		return nil, err
	}
	misnamed, err := rv.markers.findMisnamed(listing, present, lost)
	if err != nil {
		return nil, err
	}
	lost = append(lost, misnamed...)
	still, err := confirmLost(ctx, rv.owner, lost)
	if err != nil {
		return nil, err
	}
	return lost, rv.settleLost(still, listing, len(present)) //nolint:contextcheck // must complete
}

// endStrays ends processes that commands of this storage have left and that no living keeper holds,
// for example after a keeper was killed with its daemon. Their operations start again, and nothing
// may run twice at once. One pass over all processes finds them by the mark of the storage, which
// only a daemon sets, and the ID of an operation.
func (rv *recovery) endStrays(ctx context.Context) error {
	var spare []int
	if rv.config.Keepers != nil {
		spare = rv.config.Keepers.PIDs()
	}
	began := time.Now()
	count, err := keeper.EndStrays(ctx, rv.owner.Mark(), rv.config.Grace, spare...)
	if count > 0 {
		rv.starts.workHost.StraysEndedAt = began
	}
	if errors.Is(err, errors.ErrUnsupported) {
		rv.logger.Warn("processes of an earlier daemon cannot be found on this system")
		return nil
	}
	if err != nil {
		return fmt.Errorf("end what an earlier daemon left running: %w", err)
	}
	if count > 0 {
		rv.logger.Warn("processes of an earlier daemon ended", "count", count)
	}
	return nil
}

// recordsWithoutMarker returns the live records that have no marker, and rewrites the cached list
// of live operations if that is safe. It reads only the records of IDs in that list,
// so a start costs time by the live operations, not by the history.
func (rv *recovery) recordsWithoutMarker(present map[statefs.ID]bool, safe bool) ([]*statefs.Record, error) {
	live, err := rv.owner.Live.IDs()
	if err != nil {
		// The list is a cache: without it, only a marker that was removed while no daemon ran goes
		// unnoticed.
		rv.logger.Warn("cached list of live operations rebuilt", "error", err)
		live = make(map[statefs.ID]bool)
	}
	var lost []*statefs.Record
	for id := range live {
		if present[id] {
			continue
		}
		rec, err := rv.owner.ReadRecord(id)
		if err == nil && markerOf(rec).Live() {
			lost = append(lost, rec)
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			rv.logger.Error("record of an operation without a marker cannot be read", "id", id, "error", err)
		}
		delete(live, id)
	}
	if !safe {
		return lost, nil // the list names operations that the index of the history still lacks
	}
	if err := rv.owner.Live.Set(live); files.DiskFull(err) {
		// A full disk must not keep the daemon from starting: operations can still be controlled.
		rv.logger.Warn("cached list of live operations not rewritten", "error", err)
	} else if err != nil {
		return nil, err
	}
	return lost, nil
}

// addUnlisted adds the operations whose submit was cut off after the marker to the cached list of
// live operations. The reconciles have taken them over by then; the other markers are foreign, and
// in the list they would count as the daemon's.
func (rv *recovery) addUnlisted(present map[statefs.ID]bool) {
	live, err := rv.owner.Live.IDs()
	if err != nil {
		return // the list is a cache
	}
	var unlisted []statefs.ID
	for id := range present {
		if !live[id] && rv.manages(id) {
			unlisted = append(unlisted, id)
		}
	}
	if len(unlisted) > 0 {
		rv.owner.Live.Add(unlisted...)
	}
}

// confirmLost checks again after missingMarkerGrace, and returns the records whose marker is still
// missing. A process that is submitting may have written the record and not yet the marker.
func confirmLost(ctx context.Context, owner *statefs.Owner, lost []*statefs.Record,
) (still []*statefs.Record, err error) {
	if len(lost) == 0 {
		return nil, nil
	}
	timer := time.NewTimer(missingMarkerGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for _, rec := range lost {
		sight, err := owner.ObserveAll(rec.ID)
		if err != nil {
			return nil, err
		}
		if len(sight.States) == 0 {
			still = append(still, rec)
		}
	}
	return still, nil
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
func (rv *recovery) settleLost(recs []*statefs.Record, listing statefs.Listing, present int) error {
	if len(recs) == 0 {
		return nil
	}
	lost, err := rv.findLostMarkers(recs, listing)
	if err != nil {
		return err
	}
	e := decide.Env{Markers: present, Lost: len(lost)}
	for _, l := range lost {
		if l.place == decide.Misnamed {
			e.Misnamed++
		}
	}
	restored := 0
	for _, l := range lost {
		rec, state := l.rec, markerOf(l.rec)
		answer := decide.Decide(decide.Snapshot{State: recordedState(rec)}, decide.MarkerLost{Found: l.place}, e)
		switch answer.Effect { //nolint:exhaustive // the others are of other observations
		case decide.PutBack:
			err = rv.commit(rec.ID, change{file: l.file, to: state}, renameBack)
		case decide.Restore:
			err = rv.commit(rec.ID, change{rec: rec, to: state}, restoreMarker)
		default:
			err = rv.cancelLost(rec, answer)
		}
		switch {
		case err != nil:
			return fmt.Errorf("restore the marker of %s, or end it: %w", rec.ID, err)
		case l.file != "":
			rv.counters.putBack.Add(1)
			rv.logger.Warn("marker put back: it was renamed while no daemon ran", "id", rec.ID, "name", l.file, "state", state)
		case answer.Effect == decide.Restore:
			restored++
		}
	}
	if restored > 0 {
		rv.logger.Warn("all markers were gone; they are restored from the records", "folder", rv.owner.JobsDir(),
			"count", restored)
	}
	return nil
}

// recordedState returns the state that a live record has: trailing, while its optional steps go on.
func recordedState(rec *statefs.Record) statefs.State {
	if rec.Trailing {
		return statefs.Trailing
	}
	return rec.Status
}

// cancelLost ends an operation whose marker was removed while no daemon ran.
func (rv *recovery) cancelLost(rec *statefs.Record, answer decide.Answer) error {
	op := newOperation(rec)
	rv.setState(op, recordedState(rec))
	if answer.Line != "" {
		rv.logLine(op, answer.Line)
	}
	rv.endHeldCommands(rec.ID)
	if !rec.Trailing {
		rec.Reason = "marker missing"
	}
	rv.logger.Warn("cancelling an operation whose marker was removed while no daemon ran", "id", rec.ID)
	return rv.ends.finishAs(op, answer.Cause)
}
