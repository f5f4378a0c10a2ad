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
)

// retention deletes ended operations, when a person wants it and when their time is over.
type retention struct {
	*core
	ends    *ends
	pruneMu sync.Mutex // one prune at a time
}

// recoverStop ensures that an operation which waits for a person is in the feed.
func (rc *reconciler) recoverStop(op *operation) {
	switch {
	case op.state != statefs.FailedManual:
	case op.rec.Status != statefs.FailedManual:
		// A crash interrupted the transition, or another process moved the marker. The record is
		// updated as well: otherwise the next start would number the stop again.
		if err := op.rec.Apply(op.rec.Status, statefs.CauseNeedsPerson, rc.owner.Now()); err != nil {
			op.rec.Status = statefs.FailedManual
		}
		op.feed.stopUnnumbered, op.unsaved = true, true
	case op.rec.NeedsPersonSeq == 0:
		op.feed.stopUnnumbered, op.unsaved = true, true
	default:
		rc.history.Stopped(op.rec, 0)
	}
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
	if err := rv.indexAllEnded(ids); err != nil {
		return false, err
	}
	err = rv.history.Sync(ctx)
	if errors.Is(err, history.ErrNotReady) {
		return false, nil // the history has reported why
	}
	return err == nil, err
}

// indexAllEnded runs indexEnded for many operations concurrently, because each record must be read.
func (rv *recovery) indexAllEnded(ids map[statefs.ID]bool) error {
	next := make(chan statefs.ID)
	var failed error
	var once sync.Once
	var workers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for id := range next {
				if err := rv.indexEnded(id); err != nil {
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
func (c *core) indexEnded(id statefs.ID) error {
	if _, has, err := c.history.Find(id); err != nil || has {
		return nil //nolint:nilerr // the index is being built and will find it
	}
	rec, err := c.owner.ReadEnded(id)
	if err != nil || rec == nil {
		return nil //nolint:nilerr // readers of the record report it
	}
	if rec.FinishedSeq == 0 {
		if err := c.history.NumberOld(rec); err != nil {
			return err
		}
	}
	c.history.Ended(rec)
	return nil
}

// indexBuildWait is how long the start waits for the index to be built. A small index is complete
// when the daemon is ready; a large one does not delay serving.
const indexBuildWait = 500 * time.Millisecond

// openHistoryQueries enables queries of the history, after the operations that the start found are
// indexed.
func (rv *recovery) openHistoryQueries(ctx context.Context) {
	rv.history.CaughtUp()
	late := time.NewTimer(indexBuildWait)
	defer late.Stop()
	if rv.history.Ready() != nil {
		select {
		case <-rv.history.Built():
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if err := rv.history.Resume(ctx); err != nil && !errors.Is(err, history.ErrNotReady) {
		rv.logger.Error("interrupted deletion not completed; the next start retries", "error", err)
	}
}

// trimLiveList shortens the list of live operations. First it syncs the index, because the
// operations that the list drops must be there.
func (k *retention) trimLiveList(ctx context.Context) error {
	if err := k.history.Sync(ctx); err != nil {
		return nil //nolint:nilerr // the history has reported it; the list is not shortened
	}
	return k.owner.Live.Trim()
}

// withOperation runs fn while no other reconcile of the operation runs, and returns its error. op
// is nil if the daemon does not manage the operation.
func (e *ends) withOperation(ctx context.Context, id statefs.ID, fn func(op *operation) error) error {
	done := make(chan error, 1)
	e.atReconcile(id, func(op *operation) { done <- e.failOnSyncError(fn(op)) })
	select {
	case err := <-done:
		return err
	case <-e.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runCallbacks runs the functions that wait for the reconcile of an operation.
func (rc *reconciler) runCallbacks(id statefs.ID) {
	op := rc.operation(id)
	for _, fn := range rc.pendingCallbacks.take(id) {
		fn(op)
	}
}

// Pin protects an operation, live or finished, from pruning and deletion, or removes the
// protection. The error wraps history.ErrUnknown if the operation does not exist.
func (k *retention) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return k.ends.withOperation(ctx, id, func(op *operation) error {
		if op == nil {
			return k.history.Pin(ctx, id, pinned)
		}
		before := op.rec.Pinned
		op.rec.Pinned = pinned
		if op.state == statefs.Trailing {
			return k.history.Pin(ctx, id, pinned) // the record is already in the index
		}
		if err := k.commit(id, change{rec: op.rec}, writeRecord); err != nil {
			op.rec.Pinned = before
			return err
		}
		return k.commit(id, change{}, syncFiles)
	})
}

// Delete removes a finished operation. The error is a *history.HeldError if the operation must be
// kept, for example because it is live, and wraps history.ErrUnknown if it does not exist.
func (k *retention) Delete(ctx context.Context, id statefs.ID) error {
	return k.ends.withOperation(ctx, id, func(op *operation) error {
		if op != nil {
			return &history.HeldError{ID: id, Reason: "it is " + string(op.state) + ": cancel it first"}
		}
		if rec, err := statefs.ReadSubmitted(k.owner.Tree, id); err == nil && !rec.Status.Terminal() {
			return &history.HeldError{ID: id, Reason: "it has not ended"}
		}
		guards, err := k.retentionGuards()
		if err != nil {
			return err
		}
		return k.history.Delete(ctx, id, guards, k.retentionTime())
	})
}

// retentionGuards returns the reasons to keep finished operations that only the daemon and the disk
// know.
func (k *retention) retentionGuards() (g history.Guards, err error) {
	if g.Undelivered, err = k.owner.Outbox.Undelivered(); err != nil {
		return g, err
	}
	// An operation acknowledged just now has a marker but may not be managed yet.
	listing, err := k.owner.List()
	if err != nil {
		return g, err
	}
	for _, marker := range listing.Markers {
		if foreign, _ := k.unsettledIDs.get(marker.ID); foreign != "" || k.manages(marker.ID) {
			continue
		}
		if rec, err := k.owner.ReadRecord(marker.ID); err == nil {
			g.Refer(rec)
		}
	}
	for _, s := range k.live.All() { // after the markers: covers operations managed by now
		g.ReferAfter(s.ID, s.Parents()...)
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
func (k *retention) retentionTime() time.Time {
	return k.retentionClock.now(k.owner.Now(), time.Since(k.startedAt))
}

// Prune deletes the operations that exceed the retention. With dryRun it only returns them.
func (k *retention) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	if dryRun {
		guards, err := k.retentionGuards()
		if err != nil {
			return nil, err
		}
		return k.history.Plan(ctx, k.config.Retention, guards, k.retentionTime())
	}
	k.pruneMu.Lock()
	defer k.pruneMu.Unlock()
	pruned, err := k.history.Prune(ctx, k.config.Retention, k.retentionGuards, k.retentionTime())
	if len(pruned) > 0 {
		k.logger.Info("history pruned", "operations", len(pruned))
	}
	return pruned, k.failOnSyncError(err)
}

// deleteUnanswered deletes, with the first sweeps after the start, what earlier processes left of
// submits that were cut off before started.
func (k *retention) deleteUnanswered(ctx context.Context, started time.Time) (again bool) {
	again, err := k.history.DeleteUnanswered(ctx, started)
	if k.failOnSyncError(err) != nil && ctx.Err() == nil {
		k.logger.Error("records of interrupted submits not deleted, retrying", "error", err)
	}
	return again
}

// maxExcess is the longest time between two prunes under a retention by count or bytes: for that
// long the history may exceed it.
const maxExcess = time.Minute

// runPruning prunes periodically until ctx ends.
func (k *retention) runPruning(ctx context.Context) {
	if !k.config.Retention.Limits() {
		return
	}
	every := max(k.config.SweepInterval, k.config.Retention.Interval())
	if k.config.Retention.Count > 0 || k.config.Retention.Bytes > 0 {
		every = min(k.config.SweepInterval, maxExcess)
	}
	said := ""
	prune := func() (again bool) {
		_, err := k.Prune(ctx, false)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && !errors.Is(err, history.ErrNotReady) && err.Error() != said:
			said = err.Error()
			k.logger.Error("history not pruned, retrying", "error", err)
		}
		return true
	}
	if k.awaitReady(ctx) == nil && prune() {
		k.repeat(ctx, every, prune)
	}
}

const (
	// maxCorrection is how far the clock may be set forward between two calls without counting as a jump.
	maxCorrection = time.Minute
	// jumpTrustDelay is how long the clock must stay ahead after a jump before it is believed.
	jumpTrustDelay = 24 * time.Hour
)

// retentionClock decides what has expired. It follows the clock of the machine, but ignores a
// forward jump for a day: otherwise everything would expire, and be deleted, before a person sets
// the clock right. A backward jump is believed: it only keeps things longer.
//
// A jump is noticed by comparison with the uptime of the daemon, which no setting of the clock
// changes. Jumps before the daemon started go unnoticed. A sleep of the machine counts as a jump, so
// after it things expire a day later.
type retentionClock struct {
	mu        sync.Mutex
	startedAt time.Time // when the daemon started, by the believed clock; zero before the first call
	jumped    bool
	jumpedAt  time.Duration // the uptime when the jump was noticed
}

// now returns the time for retention decisions. clock is the time of the machine, ran the uptime of
// the daemon.
func (s *retentionClock) now(clock time.Time, ran time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := clock.Round(0).Add(-ran) // without the monotonic reading
	ahead := began.Sub(s.startedAt)
	switch {
	case s.startedAt.IsZero(), ahead <= maxCorrection, s.jumped && ran-s.jumpedAt >= jumpTrustDelay:
		s.startedAt, s.jumped = began, false
		return clock
	case !s.jumped:
		s.jumped, s.jumpedAt = true, ran
	}
	return s.startedAt.Add(ran)
}
