package daemon

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
)

// ending is what the numbers of the completion feed need of an operation. It belongs to its look.
type ending struct {
	// number is the one of its end, once it has one: when the disk is full it ends again, and under the same one.
	number uint64
	// stopDue says that it became failed_manual and has no number for that yet; stop is that number until it is published, and
	// earlier the one of the stop before.
	stopDue       bool
	stop, earlier uint64
}

// openHistory opens the index where the program did not bring one.
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

// end makes an end durable, enters it into the history, and then removes the marker: an operation is always found in one of the two.
func (d *Daemon) end(op *operation, rec *statefs.Record) error {
	if err := d.enter(op, rec); err != nil {
		return err
	}
	return d.owner.RemoveMarker(rec.ID, op.state)
}

// enter makes an end durable and enters it into the history. What is to be delivered is in the outbox before.
func (d *Daemon) enter(op *operation, rec *statefs.Record) error {
	if err := d.pack(rec); err != nil {
		return err
	}
	if op.ending.number == 0 {
		number, err := d.history.Number()
		if err != nil {
			return err
		}
		op.ending.number = number
	}
	rec.FinishedSeq = op.ending.number
	if err := d.owner.WriteEnd(rec); err != nil {
		if d.isFree(rec.ID, op.ending.number) {
			d.history.Unused(op.ending.number)
			op.ending.number = 0
		}
		return err
	}
	op.ends()
	d.history.Ended(rec)
	d.ship(rec)
	return nil
}

// isFree reports whether a record that could not be written certainly does not hold a number.
func (d *Daemon) isFree(id statefs.ID, number uint64) bool {
	rec, err := d.owner.ReadRecord(id)
	return err == nil && rec.FinishedSeq != number && rec.NeedsPersonSeq != number
}

// numberStop gives an operation that became failed_manual its place in the feed, before its record is written.
func (d *Daemon) numberStop(op *operation) error {
	e := &op.ending
	if !e.stopDue {
		return nil
	}
	number, err := d.history.Number()
	if err != nil {
		return err
	}
	e.stopDue, e.stop, e.earlier = false, number, op.rec.NeedsPersonSeq
	op.rec.NeedsPersonSeq = number
	return nil
}

// saveStop publishes that an operation stopped for a person, once the record says so; written is the error of writing it.
func (d *Daemon) saveStop(op *operation, written error) error {
	e := &op.ending
	if e.stop == 0 {
		return written
	}
	if written == nil {
		written = d.owner.Sync(op.id())
	}
	if written != nil {
		if d.isFree(op.id(), e.stop) {
			d.history.Unused(e.stop)
			op.rec.NeedsPersonSeq = e.earlier
			e.stopDue, e.stop = true, 0
		}
		return written
	}
	d.history.Stopped(op.rec, e.earlier)
	e.stop = 0
	return nil
}

// takeOverStop sees to it that an operation which waits for a person is in the feed.
func (d *Daemon) takeOverStop(op *operation) {
	switch {
	case op.state != statefs.FailedManual:
	case op.rec.Status != statefs.FailedManual:
		// A crash cut it off, or somebody moved the marker meanwhile. The record has to say so as well: a start that finds it as it
		// was would number the stop once more.
		if err := op.rec.Apply(op.rec.Status, statefs.CauseNeedsPerson, d.owner.Now()); err != nil {
			op.rec.Status = statefs.FailedManual
		}
		op.ending.stopDue, op.unsaved = true, true
	case op.rec.NeedsPersonSeq == 0:
		op.ending.stopDue, op.unsaved = true, true
	default:
		d.history.Stopped(op.rec, 0)
	}
}

// catchUp enters what ended just before the last daemon did. The list of live operations names everything that ended since the
// index was last synced, so this costs nothing of the history; when it is safe, that list may be shortened. What has a marker stays in the list, and is
// entered by the look that removes the marker.
func (d *Daemon) catchUp(ctx context.Context, present map[statefs.ID]bool) (safe bool, err error) {
	ids, _, err := d.owner.EverLive()
	if err != nil {
		d.logger.Warn("what ended last may be missing in the history until its index is built again", "error", err)
	}
	maps.DeleteFunc(ids, func(id statefs.ID, _ bool) bool { return present[id] })
	if err := d.enterAll(ids); err != nil {
		return false, err
	}
	err = d.history.Sync(ctx)
	if errors.Is(err, history.ErrNotReady) {
		return false, nil // the history has reported why
	}
	return err == nil, err
}

// enterAll is enterEnded for many, side by side: each record is read.
func (d *Daemon) enterAll(ids map[statefs.ID]bool) error {
	next := make(chan statefs.ID)
	var failed error
	var once sync.Once
	var workers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for id := range next {
				if err := d.enterEnded(id); err != nil {
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

// enterEnded enters an operation that has ended, unless it is there.
func (d *Daemon) enterEnded(id statefs.ID) error {
	if has, err := d.history.Has(id); err != nil || has {
		return nil //nolint:nilerr // an index that is being built finds it
	}
	rec, err := d.owner.ReadEnded(id)
	if err != nil || rec == nil {
		return nil //nolint:nilerr // others report what cannot be read
	}
	if rec.FinishedSeq == 0 {
		if err := d.history.NumberOld(rec); err != nil {
			return err
		}
	}
	d.history.Ended(rec)
	return nil
}

// smallHistory is how long a start waits for the index to be built. A small history is there when the daemon is ready, and a large
// one does not keep it from serving.
const smallHistory = 500 * time.Millisecond

// openLists lets the history be asked, once what the start found has been entered.
func (d *Daemon) openLists(ctx context.Context) {
	d.history.CaughtUp()
	late := time.NewTimer(smallHistory)
	defer late.Stop()
	if d.history.Ready() != nil {
		select {
		case <-d.history.Built():
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if err := d.history.Resume(ctx); err != nil && !errors.Is(err, history.ErrNotReady) {
		d.logger.Error("a deletion that was cut off could not be ended; the next start tries again", "error", err)
	}
}

// trimLiveList shortens the list of live operations. What it forgets must be in the index for good.
func (d *Daemon) trimLiveList(ctx context.Context) error {
	if err := d.history.Sync(ctx); err != nil {
		return nil //nolint:nilerr // the history has reported it; the list stays as long as it is
	}
	return d.owner.TrimLiveList()
}

// atLook has fn called with the next look at an operation, or with nil when the daemon does not have it in hand.
func (d *Daemon) atLook(id statefs.ID, fn func(op *operation)) {
	d.mu.Lock()
	if d.inside == nil {
		d.inside = make(map[statefs.ID][]func(*operation))
	}
	d.inside[id] = append(d.inside[id], fn)
	d.mu.Unlock()
	d.looks.want(id)
}

// within calls fn while nothing else looks at an operation; op is nil when the daemon does not have it in hand.
func (d *Daemon) within(ctx context.Context, id statefs.ID, fn func(op *operation) error) error {
	done := make(chan error, 1)
	d.atLook(id, func(op *operation) { done <- d.heed(fn(op)) })
	select {
	case err := <-done:
		return err
	case <-d.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heed ends the daemon when the disk failed.
func (d *Daemon) heed(err error) error {
	if failed, ok := errors.AsType[*statefs.SyncError](err); ok {
		d.fail(failed)
	}
	return err
}

// runInside carries out what waits for the look at an operation.
func (d *Daemon) runInside(id statefs.ID) {
	d.mu.Lock()
	waiting := d.inside[id]
	delete(d.inside, id)
	op := d.ops[id]
	d.mu.Unlock()
	for _, fn := range waiting {
		fn(op)
	}
}

// Pin keeps an operation, live or ended, from being pruned and deleted, or ends that. The error wraps history.ErrUnknown when there
// is none.
func (d *Daemon) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return d.within(ctx, id, func(op *operation) error {
		if op == nil {
			return d.history.Pin(ctx, id, pinned)
		}
		before := op.rec.Pinned
		op.rec.Pinned = pinned
		if op.state == statefs.Trailing {
			return d.history.Pin(ctx, id, pinned) // the record is in the index already
		}
		if err := d.owner.WriteRecord(op.rec); err != nil {
			op.rec.Pinned = before
			return err
		}
		return d.owner.Sync(id)
	})
}

// Delete removes an operation that has ended. The error is a *history.HeldError when it is kept, because it is
// live among other reasons, and wraps history.ErrUnknown when there is none.
func (d *Daemon) Delete(ctx context.Context, id statefs.ID) error {
	return d.within(ctx, id, func(op *operation) error {
		if op != nil {
			return &history.HeldError{ID: id, Reason: "it is " + string(op.state) + ": cancel it first"}
		}
		if rec, err := d.owner.ReadRecord(id); err == nil && !rec.Status.Terminal() {
			return &history.HeldError{ID: id, Reason: "it has not ended"}
		}
		guards, err := d.guards()
		if err != nil {
			return err
		}
		return d.history.Delete(ctx, id, guards)
	})
}

// guards are the reasons to keep ended operations that only the daemon and the disk know.
func (d *Daemon) guards() (g history.Guards, err error) {
	if g.Undelivered, err = d.owner.Undelivered(); err != nil {
		return g, err
	}
	// What was acknowledged a moment ago has its marker, and may not be in hand yet.
	listing, err := d.owner.List()
	if err != nil {
		return g, err
	}
	for _, marker := range listing.Markers {
		if d.manages(marker.ID) {
			continue
		}
		if rec, err := d.owner.ReadRecord(marker.ID); err == nil {
			g.Refer(rec)
		}
	}
	d.chains.guard(&g) // after the markers: what is in hand by now is among them
	for _, live := range d.Live() {
		if live.State == statefs.Trailing {
			if g.Trailing == nil {
				g.Trailing = make(map[statefs.ID]bool)
			}
			g.Trailing[live.ID] = true
		}
		if of, ok := live.Row.Retries(); ok {
			g.ReferRetry(live.ID, of)
		}
	}
	return g, nil
}

// retentionTime is the time by which the retention says what is too old.
func (d *Daemon) retentionTime() time.Time { return d.steady.now(d.owner.Now(), time.Since(d.began)) }

// Prune deletes what the retention does not keep, or with dryRun only says what that is.
func (d *Daemon) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	if dryRun {
		guards, err := d.guards()
		if err != nil {
			return nil, err
		}
		return d.history.Plan(ctx, d.config.Retention, guards, d.retentionTime())
	}
	d.pruning.Lock()
	defer d.pruning.Unlock()
	pruned, err := d.history.Prune(ctx, d.config.Retention, d.guards, d.retentionTime())
	if len(pruned) > 0 {
		d.logger.Info("history pruned", "operations", len(pruned))
	}
	return pruned, d.heed(err)
}

// keepPruning prunes now and then, until ctx ends.
func (d *Daemon) keepPruning(ctx context.Context) {
	if !d.config.Retention.Limits() {
		return
	}
	select {
	case <-d.ready:
	case <-ctx.Done():
		return
	}
	ticks := time.NewTicker(max(d.config.SweepInterval, d.config.Retention.Interval()))
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
			d.logger.Error("history not pruned; it is tried again", "error", err)
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
