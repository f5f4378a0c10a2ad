package daemon

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// feedNumbers holds an operation's numbers in the completion feed. Only the reconcile of the
// operation uses it.
type feedNumbers struct {
	// end is the number of the operation's end, 0 until it has one. When the end is repeated after
	// a full disk, it keeps its number.
	end uint64
	// stopUnnumbered is set while the operation is failed_manual and that stop has no number yet.
	// unpublishedStop is the number of the stop until it is published, and earlierStop is the
	// number of the stop before it.
	stopUnnumbered               bool
	unpublishedStop, earlierStop uint64
}

// openHistory opens the history index unless Config provides one.
func (d *Daemon) openHistory() (err error) {
	if d.history = d.config.History; d.history != nil {
		return nil
	}
	d.history, err = history.Open(d.owner, d.logger)
	return err
}

func (d *Daemon) closeHistory() error {
	if d.config.History != nil {
		return nil
	}
	return d.history.Close()
}

// recordEnd makes an end durable and enters it into the history, and then removes the marker, or moves it
// to trailing: at any time an operation is found in the history or by its marker. Before all that it
// writes the outbox entries of its deliveries.
func (d *Daemon) recordEnd(op *operation, rec *statefs.Record) error {
	if err := d.Deliveries.Write(rec); err != nil {
		return err
	}
	if op.feed.end == 0 {
		number, err := d.history.Number()
		if err != nil {
			return err
		}
		op.feed.end = number
	}
	rec.FinishedSeq = op.feed.end
	if err := d.commit(rec.ID, change{rec: rec}, writeEnd); err != nil {
		if d.isUnusedNumber(rec.ID, op.feed.end) {
			d.history.Unused(op.feed.end)
			op.feed.end = 0
		}
		return err
	}
	d.live.End(op.id())
	d.history.Ended(rec)
	d.Deliveries.Enqueue(rec)
	if rec.Trailing {
		return d.commit(rec.ID, change{from: op.state, to: statefs.Trailing}, moveMarker, syncFiles)
	}
	return d.commit(rec.ID, change{from: op.state}, removeMarker)
}

// isUnusedNumber reports whether a record whose write failed certainly does not contain number.
func (d *Daemon) isUnusedNumber(id statefs.ID, number uint64) bool {
	rec, err := d.owner.ReadRecord(id)
	return err == nil && rec.FinishedSeq != number && rec.NeedsPersonSeq != number
}

// numberStop assigns a number in the feed to the stop of an operation that became failed_manual. It
// is called before the record is written.
func (d *Daemon) numberStop(op *operation) error {
	e := &op.feed
	if !e.stopUnnumbered {
		return nil
	}
	number, err := d.history.Number()
	if err != nil {
		return err
	}
	e.stopUnnumbered, e.unpublishedStop, e.earlierStop = false, number, op.rec.NeedsPersonSeq
	op.rec.NeedsPersonSeq = number
	return nil
}

// publishStop publishes that an operation waits for a person, once its record is durable. written
// is the error of writing the record. If the write or the sync fails and the record certainly does
// not contain the number, the number is marked unused and the stop gets a new one later.
func (d *Daemon) publishStop(op *operation, written error) error {
	e := &op.feed
	if e.unpublishedStop == 0 {
		return written
	}
	if written == nil {
		written = d.commit(op.id(), change{}, syncFiles)
	}
	if written != nil {
		if d.isUnusedNumber(op.id(), e.unpublishedStop) {
			d.history.Unused(e.unpublishedStop)
			op.rec.NeedsPersonSeq = e.earlierStop
			e.stopUnnumbered, e.unpublishedStop = true, 0
		}
		return written
	}
	d.history.Stopped(op.rec, e.earlierStop)
	e.unpublishedStop = 0
	return nil
}

// recoverStop ensures that an operation which waits for a person is in the feed.
func (d *Daemon) recoverStop(op *operation) {
	switch {
	case op.state != statefs.FailedManual:
	case op.rec.Status != statefs.FailedManual:
		// A crash interrupted the transition, or another process moved the marker. The record is
		// updated as well: otherwise the next start would number the stop again.
		if err := op.rec.Apply(op.rec.Status, statefs.CauseNeedsPerson, d.owner.Now()); err != nil {
			op.rec.Status = statefs.FailedManual
		}
		op.feed.stopUnnumbered, op.unsaved = true, true
	case op.rec.NeedsPersonSeq == 0:
		op.feed.stopUnnumbered, op.unsaved = true, true
	default:
		d.history.Stopped(op.rec, 0)
	}
}

// indexMissedEnds indexes the operations that ended just before the last daemon did. The list of
// live operations names every operation that ended since the last sync of the index, so nothing
// else of the history is read. safe reports that the list may be shortened. Operations with a
// marker stay in the list; the reconcile that removes the marker indexes them.
func (d *Daemon) indexMissedEnds(ctx context.Context, present map[statefs.ID]bool) (safe bool, err error) {
	ids, _, err := d.owner.Live.Listed()
	if err != nil {
		d.logger.Warn("the last ended operations may be missing in the history until its index is rebuilt", "error", err)
	}
	maps.DeleteFunc(ids, func(id statefs.ID, _ bool) bool { return present[id] })
	if err := d.indexAllEnded(ids); err != nil {
		return false, err
	}
	err = d.history.Sync(ctx)
	if errors.Is(err, history.ErrNotReady) {
		return false, nil // the history has reported why
	}
	return err == nil, err
}

// indexAllEnded runs indexEnded for many operations concurrently, because each record must be read.
func (d *Daemon) indexAllEnded(ids map[statefs.ID]bool) error {
	next := make(chan statefs.ID)
	var failed error
	var once sync.Once
	var workers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for id := range next {
				if err := d.indexEnded(id); err != nil {
					once.Do(func() { failed = err })
				}
			}
		})
	}
	for id := range ids {
		next <- id
	}
	close(next)
	workers.Wait()
	return failed
}

// indexEnded indexes a finished operation that is not in the index yet.
func (d *Daemon) indexEnded(id statefs.ID) error {
	if _, has, err := d.history.Find(id); err != nil || has {
		return nil //nolint:nilerr // the index is being built and will find it
	}
	rec, err := d.owner.ReadEnded(id)
	if err != nil || rec == nil {
		return nil //nolint:nilerr // readers of the record report it
	}
	if rec.FinishedSeq == 0 {
		if err := d.history.NumberOld(rec); err != nil {
			return err
		}
	}
	d.history.Ended(rec)
	return nil
}

// indexBuildWait is how long the start waits for the index to be built. A small index is complete
// when the daemon is ready; a large one does not delay serving.
const indexBuildWait = 500 * time.Millisecond

// openHistoryQueries enables queries of the history, after the operations that the start found are
// indexed.
func (d *Daemon) openHistoryQueries(ctx context.Context) {
	d.history.CaughtUp()
	late := time.NewTimer(indexBuildWait)
	defer late.Stop()
	if d.history.Ready() != nil {
		select {
		case <-d.history.Built():
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if err := d.history.Resume(ctx); err != nil && !errors.Is(err, history.ErrNotReady) {
		d.logger.Error("interrupted deletion not completed; the next start retries", "error", err)
	}
}

// trimLiveList shortens the list of live operations. First it syncs the index, because the
// operations that the list drops must be there.
func (d *Daemon) trimLiveList(ctx context.Context) error {
	if err := d.history.Sync(ctx); err != nil {
		return nil //nolint:nilerr // the history has reported it; the list is not shortened
	}
	return d.owner.Live.Trim()
}

// atReconcile runs fn with the next reconcile of an operation. fn gets nil if the daemon does not
// manage it.
func (d *Daemon) atReconcile(id statefs.ID, fn func(op *operation)) {
	d.mu.Lock()
	if d.pendingCallbacks == nil {
		d.pendingCallbacks = make(map[statefs.ID][]func(*operation))
	}
	d.pendingCallbacks[id] = append(d.pendingCallbacks[id], fn)
	d.mu.Unlock()
	d.reconcileQueue.enqueue(id)
}

// withOperation runs fn while no other reconcile of the operation runs, and returns its error. op
// is nil if the daemon does not manage the operation.
func (d *Daemon) withOperation(ctx context.Context, id statefs.ID, fn func(op *operation) error) error {
	done := make(chan error, 1)
	d.atReconcile(id, func(op *operation) { done <- d.failOnSyncError(fn(op)) })
	select {
	case err := <-done:
		return err
	case <-d.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failOnSyncError ends the daemon if err is a failed sync, and returns err.
func (d *Daemon) failOnSyncError(err error) error {
	if failed, ok := errors.AsType[*files.SyncError](err); ok {
		d.fail(failed)
	}
	return err
}

// runCallbacks runs the functions that wait for the reconcile of an operation.
func (d *Daemon) runCallbacks(id statefs.ID) {
	d.mu.Lock()
	waiting := d.pendingCallbacks[id]
	delete(d.pendingCallbacks, id)
	d.mu.Unlock()
	op := d.operation(id)
	for _, fn := range waiting {
		fn(op)
	}
}

// Pin protects an operation, live or finished, from pruning and deletion, or removes the
// protection. The error wraps history.ErrUnknown if the operation does not exist.
func (d *Daemon) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return d.withOperation(ctx, id, func(op *operation) error {
		if op == nil {
			return d.history.Pin(ctx, id, pinned)
		}
		before := op.rec.Pinned
		op.rec.Pinned = pinned
		if op.state == statefs.Trailing {
			return d.history.Pin(ctx, id, pinned) // the record is already in the index
		}
		if err := d.commit(id, change{rec: op.rec}, writeRecord); err != nil {
			op.rec.Pinned = before
			return err
		}
		return d.commit(id, change{}, syncFiles)
	})
}

// Delete removes a finished operation. The error is a *history.HeldError if the operation must be
// kept, for example because it is live, and wraps history.ErrUnknown if it does not exist.
func (d *Daemon) Delete(ctx context.Context, id statefs.ID) error {
	return d.withOperation(ctx, id, func(op *operation) error {
		if op != nil {
			return &history.HeldError{ID: id, Reason: "it is " + string(op.state) + ": cancel it first"}
		}
		if rec, err := statefs.ReadSubmitted(d.owner.Tree, id); err == nil && !rec.Status.Terminal() {
			return &history.HeldError{ID: id, Reason: "it has not ended"}
		}
		guards, err := d.retentionGuards()
		if err != nil {
			return err
		}
		return d.history.Delete(ctx, id, guards, d.retentionTime())
	})
}

// retentionGuards returns the reasons to keep finished operations that only the daemon and the disk
// know.
func (d *Daemon) retentionGuards() (g history.Guards, err error) {
	if g.Undelivered, err = d.owner.Outbox.Undelivered(); err != nil {
		return g, err
	}
	// An operation acknowledged just now has a marker but may not be managed yet.
	listing, err := d.owner.List()
	if err != nil {
		return g, err
	}
	for _, marker := range listing.Markers {
		if d.manages(marker.ID) || d.unsettledIDs.isForeign(marker.ID) {
			continue
		}
		if rec, err := d.owner.ReadRecord(marker.ID); err == nil {
			g.Refer(rec)
		}
	}
	for _, s := range d.live.All() { // after the markers: covers operations managed by now
		g.ReferAfter(s.ID, s.Parents...)
		if s.State == statefs.Trailing {
			if g.Trailing == nil {
				g.Trailing = make(map[statefs.ID]bool)
			}
			g.Trailing[s.ID] = true
		}
		if of, ok := s.Row.Retries(); ok {
			g.ReferRetry(s.ID, of)
		}
	}
	return g, nil
}

// retentionTime returns the time against which the retention measures age.
func (d *Daemon) retentionTime() time.Time {
	return d.retentionClock.now(d.owner.Now(), time.Since(d.startedAt))
}

// Prune deletes the operations that exceed the retention. With dryRun it only returns them.
func (d *Daemon) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	if dryRun {
		guards, err := d.retentionGuards()
		if err != nil {
			return nil, err
		}
		return d.history.Plan(ctx, d.config.Retention, guards, d.retentionTime())
	}
	d.pruneMu.Lock()
	defer d.pruneMu.Unlock()
	pruned, err := d.history.Prune(ctx, d.config.Retention, d.retentionGuards, d.retentionTime())
	if len(pruned) > 0 {
		d.logger.Info("history pruned", "operations", len(pruned))
	}
	return pruned, d.failOnSyncError(err)
}

// deleteUnanswered deletes, with the first sweeps after the start, what earlier processes left of
// submits that were cut off.
func deleteUnanswered(ctx context.Context, d *Daemon, started time.Time) {
	ticks := time.NewTicker(d.config.SweepInterval)
	defer ticks.Stop()
	for again := true; again; {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if !isClosed(d.ready) {
			continue
		}
		var err error
		if again, err = d.history.DeleteUnanswered(ctx, started); d.failOnSyncError(err) != nil && ctx.Err() == nil {
			d.logger.Error("records of interrupted submits not deleted, retrying", "error", err)
		}
	}
}

// maxExcess is the longest time between two prunes under a retention by count or bytes: for that
// long the history may exceed it.
const maxExcess = time.Minute

// runPruning prunes periodically until ctx ends.
func (d *Daemon) runPruning(ctx context.Context) {
	if !d.config.Retention.Limits() {
		return
	}
	select {
	case <-d.ready:
	case <-ctx.Done():
		return
	}
	every := max(d.config.SweepInterval, d.config.Retention.Interval())
	if d.config.Retention.Count > 0 || d.config.Retention.Bytes > 0 {
		every = min(d.config.SweepInterval, maxExcess)
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	said := ""
	for {
		_, err := d.Prune(ctx, false)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() != nil:
			return
		case !errors.Is(err, history.ErrNotReady) && err.Error() != said:
			said = err.Error()
			d.logger.Error("history not pruned, retrying", "error", err)
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
