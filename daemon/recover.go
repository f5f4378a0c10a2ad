package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
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
	if err := rv.owner.Records.BeginStart(); err != nil {
		rv.logger.Warn("the copies of records cannot be read: each record is read from its file", "error", err)
	}
	defer rv.owner.Records.EndStart()
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

// awaitKeepers waits until all keepers have answered or died. Then it ends the commands that belong
// to no operation, and allows the operations that existed at the start to begin. It also returns
// when ctx ends.
func (rv *recovery) awaitKeepers(ctx context.Context) {
	if rv.starts.awaitingKeepers.Load() == nil {
		return
	}
	select {
	case <-rv.config.Keepers.Settled():
	case <-ctx.Done():
		return
	}
	if err := rv.endUnwantedCommands(rv.starts.workHost.HeldCommands()); err != nil {
		rv.fail(err)
		return
	}
	rv.starts.awaitingKeepers.Store(nil)
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

// lostMarker is a live record whose marker a start did not find, and the file that is its marker, "" for none.
type lostMarker struct {
	rec   *statefs.Record
	place decide.Place
	file  string
}

// findLostMarkers searches for markers that were renamed while no daemon ran: to the bare ID, to an
// unknown ending, or to a name of another operation, where the creation time in the first line
// shows the owner.
func (rv *recovery) findLostMarkers(recs []*statefs.Record, listing statefs.Listing) (lost []lostMarker, err error) {
	renamed := make(map[statefs.ID]string)
	for _, e := range listing.Unknown {
		renamed[e.ID] = e.File
	}
	foreign := rv.markers.overwrittenMarkers(listing.Markers)
	for _, rec := range recs {
		l := lostMarker{rec, decide.Misnamed, renamed[rec.ID]}
		if l.file == "" {
			if l.file, err = bareMarker(rv.owner.JobsDir(), rec.ID); err != nil {
				return nil, err
			}
		}
		if l.file == "" {
			l.place, l.file = decide.Misplaced, foreign[rec.CreatedAt.UnixMicro()]
		}
		if l.file == "" {
			l.place = decide.Nowhere
		}
		lost = append(lost, l)
	}
	return lost, nil
}

// bareMarker returns the name of a file that is named by the bare ID, which means that the ending of
// a marker was cut off; "" for none. Listings do not contain such names.
func bareMarker(jobsDir string, id statefs.ID) (file string, err error) {
	info, err := os.Lstat(filepath.Join(jobsDir, id.String()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil || !info.Mode().IsRegular():
		return "", err
	}
	return id.String(), nil
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
	select {
	case <-time.After(missingMarkerGrace):
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

// cancelLost ends an operation whose marker was removed while no daemon ran. On a full disk its reconciles do that
// when there is room: to them the marker is missing, as if it had been removed while a daemon runs.
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
	err := rv.ends.finishAs(op, answer.Cause)
	if !files.DiskFull(err) {
		return err
	}
	rv.track(op)
	if rec.Trailing {
		op.feed.end = rec.FinishedSeq
		rv.live.End(rec.ID) // the index has it
	}
	return nil
}

// endUnwantedCommands ends the commands in held that no operation needs: those of an earlier run,
// and those of an operation that has ended, was moved manually or is gone. It waits for their end,
// because the next run of the same operation is about to start.
func (rv *recovery) endUnwantedCommands(held map[statefs.ID][]keeper.HeldCommand) error {
	var unwanted []keeper.Running
	for id, held := range held {
		runs, err := rv.wantedRuns(id)
		if err != nil {
			return err
		}
		for _, h := range held {
			if slices.Contains(runs, h.Key.Run) || slices.Contains(runs, anyRun) {
				continue
			}
			if p, ok := rv.config.Keepers.Find(h.Key, ""); ok {
				unwanted = append(unwanted, p)
				rv.logger.Info("ending a command of an earlier daemon: its run is over", "command", h.Key, "pid",
					h.PID, "ended", h.Ended)
			}
		}
	}
	work.EndCommands(unwanted...)
	return nil
}

// anyRun means all runs instead of the number of one.
const anyRun = -1

// wantedRuns returns the numbers of the runs whose commands must continue.
func (rv *recovery) wantedRuns(id statefs.ID) (runs []int, err error) {
	sight, err := rv.owner.ObserveAll(id)
	if err != nil {
		return nil, err
	}
	rec, err := rv.owner.ReadRecord(id)
	if errors.Is(err, statefs.ErrNewerVersion) || isTransient(err) {
		return []int{anyRun}, nil // the operation is left alone with its commands, or its reconcile tries again
	}
	if err != nil || rec.Status.Terminal() && !rec.Trailing || len(sight.States) == 0 {
		return nil, nil //nolint:nilerr // the reconcile reports the reason; without a record no command continues
	}
	state := sight.States[0]
	if len(sight.States) > 1 {
		state = rv.owner.ChooseMarker(id, sight.States, rec)
	}
	for _, s := range rec.Steps {
		if s.Optional && s.Status == steps.Running {
			runs = append(runs, s.Run)
		}
	}
	if !rec.Trailing && mayHaveCommands(rec, statefs.InterpretMarker(rec, state)) {
		runs = append(runs, runNumber(rec))
	}
	return runs, nil
}

// endHeldCommands ends the commands that keepers hold for an operation that ends now.
func (rv *recovery) endHeldCommands(id statefs.ID) {
	var commands []keeper.Running
	for _, h := range rv.starts.heldCommands[id] {
		if p, ok := rv.config.Keepers.Find(h.Key, ""); ok {
			commands = append(commands, p)
		}
	}
	work.EndCommands(commands...)
}

// indexMissedEnds indexes the operations that ended just before the last daemon did. The list of
// live operations names every operation that ended since the last sync of the index, so nothing
// else of the history is read. safe reports that the list may be shortened. Operations with a
// marker stay in the list; the reconcile that removes the marker indexes them.
func (rv *recovery) indexMissedEnds(ctx context.Context, present map[statefs.ID]bool) (safe bool, err error) {
	ids, _, err := rv.owner.Live.Listed()
	if err != nil {
		rv.logger.Warn("the last ended operations may be missing in the history until its index is rebuilt", "error", err)
	}
	maps.DeleteFunc(ids, func(id statefs.ID, _ bool) bool { return present[id] })
	// Concurrently, because each record must be read.
	err = statefs.ForEachParallel(slices.Collect(maps.Keys(ids)), 2*runtime.GOMAXPROCS(0), rv.indexEnded)
	if err != nil {
		return false, err
	}
	err = rv.history.Sync(ctx)
	if errors.Is(err, history.ErrNotReady) {
		return false, nil // the history has reported why
	}
	return err == nil, err
}

// indexBuildWait is how long the start waits for the index to be built. A small index is complete
// when the daemon is ready; a large one does not delay serving.
const indexBuildWait = 500 * time.Millisecond

// openHistoryQueries enables queries of the history, after the operations that the start found are
// indexed.
func (rv *recovery) openHistoryQueries(ctx context.Context) {
	rv.history.CaughtUp()
	if rv.history.Ready() != nil {
		select {
		case <-rv.history.Built():
		case <-time.After(indexBuildWait):
		case <-ctx.Done():
		}
	}
	if err := rv.history.Resume(ctx); err != nil && !errors.Is(err, history.ErrNotReady) {
		rv.logger.Error("interrupted deletion not completed; the next start retries", "error", err)
	}
}
