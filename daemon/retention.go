package daemon

import (
	"context"
	"errors"
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
	g.Trailing = make(map[statefs.ID]bool)
	for _, s := range k.live.All() { // after the markers: covers operations managed by now
		g.ReferAfter(s.ID, s.Parents()...)
		if s.State == statefs.Trailing {
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
