package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// The files of outbox/ are the authority on what is to be delivered, and people may change them:
//
//	mv X.failed_manual X.pending, touch X.retry_requested ──event──▶ reconcile ──▶ record: pending ──▶ tried at once
//	rm X.pending, touch X.drop_requested ──────────────────────────▶ reconcile ──▶ record: dropped ──▶ files removed
//	mv X.pending X.failed_manual ──────────────────────────────────▶ reconcile ──▶ record: failed_manual
//
// A reconcile compares the files of one entry with its record and the memory, while no other
// reconcile of the operation runs.

// maxEntriesAtOnce limits the entries that are reconciled concurrently: each may write a record.
const maxEntriesAtOnce = 32

// manualActor is recorded as the actor when a person moved or removed a file without giving a name.
const manualActor = "by hand"

// openOutbox starts the watch of outbox/. The files that already exist are handled by
// recoverOutbox.
func (d *Daemon) openOutbox() (err error) {
	d.entryWatch, err = watch.OpenDir(d.owner.Outbox.Dir(), func(file string) (statefs.EntryName, bool) {
		if name, _, err := statefs.ParseEntryName(file); err == nil {
			return name, true
		}
		name, _, ok := statefs.ParseDeliveryRequest(file)
		return name, ok
	}, d.config.Watch)
	if err != nil {
		return fmt.Errorf("watch %s: %w", d.owner.Outbox.Dir(), err)
	}
	return nil
}

// runOutbox reconciles what changes in outbox/ until ctx ends.
func (d *Daemon) runOutbox(ctx context.Context) {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return
	}
	said := make(map[statefs.EntryName]string) // the last logged error of each entry
	odd := make(map[string]bool)
	for {
		var all bool
		var names []statefs.EntryName
		select {
		case <-d.entryWatch.Ready():
			names, all = d.entryWatch.Take()
		case <-d.outboxScan:
			all = true
		case <-ctx.Done():
			return
		}
		if all {
			if err := d.entryWatch.Check(); err != nil {
				d.fail(err)
				return
			}
			more, err := d.outboxDifferences(odd)
			if err != nil {
				d.logger.Error("the outbox cannot be listed; the next sweep tries again", "error", err)
			}
			names = append(names, more...)
		}
		d.reconcileEntries(ctx, names, said)
	}
}

// scanOutboxSoon requests a comparison of outbox/ with the memory.
func (d *Daemon) scanOutboxSoon() {
	select {
	case d.outboxScan <- struct{}{}:
	default:
	}
}

// outboxDifferences returns the entries whose files differ from what is known, and those with
// requests. It logs each file with an invalid name once; odd holds the logged names.
func (d *Daemon) outboxDifferences(odd map[string]bool) ([]statefs.EntryName, error) {
	if err := d.owner.Outbox.TrimList(); err != nil {
		return nil, err
	}
	files, err := d.owner.Outbox.List()
	if err != nil {
		return nil, err
	}
	for _, file := range files.Others {
		if !odd[file] {
			odd[file] = true
			d.logger.Warn("a file of outbox/ means nothing; it is left alone, and its operation is kept", "file", file)
		}
	}
	names := files.Requested
	present := make(map[statefs.EntryName]bool, len(files.Pending)+len(files.Manual))
	for _, name := range files.Pending {
		present[name] = true
		if !matchesFiles(d.outbox.State(name), true, false) {
			names = append(names, name)
		}
	}
	for _, name := range files.Manual {
		present[name] = true
		if !matchesFiles(d.outbox.State(name), true, true) {
			names = append(names, name)
		}
	}
	return append(names, d.outbox.Except(present)...), nil // Except runs after the listing, so most of these are new
}

// matchesFiles reports whether the known state of an entry agrees with its files.
func matchesFiles(s outbox.EntryState, has, manual bool) bool {
	switch s {
	case outbox.Unknown:
		return !has
	case outbox.Held:
		return has && manual
	case outbox.Expected, outbox.Waiting, outbox.Busy, outbox.Deferred:
	}
	return has && !manual
}

// reconcileEntries reconciles several entries concurrently. It logs an error once, until it changes
// or is over.
func (d *Daemon) reconcileEntries(ctx context.Context, names []statefs.EntryName, said map[statefs.EntryName]string) {
	d.eachEntry(names, func(name statefs.EntryName) error { return d.reconcileEntry(ctx, name) },
		func(name statefs.EntryName, err error) {
			switch {
			case err == nil || ctx.Err() != nil:
				delete(said, name)
			case said[name] != err.Error():
				said[name] = err.Error()
				d.logger.Error("an entry of the outbox stays as it is", "entry", name, "error", err)
			}
		})
}

// eachEntry calls do for each entry, several at a time, and then done with the result, one at a
// time.
func (d *Daemon) eachEntry(names []statefs.EntryName, do func(statefs.EntryName) error,
	done func(statefs.EntryName, error),
) {
	var workers sync.WaitGroup
	var mu sync.Mutex
	next := make(chan statefs.EntryName)
	for range min(maxEntriesAtOnce, len(names)) {
		workers.Go(func() {
			for name := range next {
				err := do(name)
				mu.Lock()
				done(name, err)
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	workers.Wait()
}

// ReconcileEntry reconciles an entry and carries out its request before it returns.
func (d *Daemon) ReconcileEntry(ctx context.Context, name statefs.EntryName) error {
	select {
	case <-d.ready:
		return d.reconcileEntry(ctx, name)
	case <-d.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitEntry reports attempts to deliver an entry: done is closed when an attempt that begins from
// now on ends, and when the entry is settled or removed. The caller must call stop.
func (d *Daemon) AwaitEntry(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	return d.outbox.Await(name)
}

func (d *Daemon) reconcileEntry(ctx context.Context, name statefs.EntryName) error {
	has, manual, err := d.owner.Outbox.Has(name)
	if err != nil {
		return err
	}
	if _, asked, err := d.owner.Outbox.Requested(name); err != nil || !asked &&
		matchesFiles(d.outbox.State(name), has, manual) {
		return err
	}
	return d.withOperation(ctx, name.ID, func(op *operation) error {
		return d.syncEntry(ctx, op, name, d.outbox.State(name) != outbox.Unknown)
	})
}

// syncEntry brings an entry, its record and the memory in line, and carries out the entry's
// request. known means that the entry existed: if it is gone, a person removed it. No other
// reconcile of the operation runs concurrently.
func (d *Daemon) syncEntry(ctx context.Context, op *operation, name statefs.EntryName, known bool) error {
	has, manual, err := d.owner.Outbox.Has(name)
	if err != nil {
		return err
	}
	asked, isAsked, err := d.owner.Outbox.Requested(name)
	if err != nil {
		return err
	}
	rec, err := d.endedRecord(op, name.ID)
	switch {
	case errors.Is(err, errNotReady) || err == nil && !rec.Status.Terminal():
		if isAsked {
			d.logger.Info("a request about a delivery has no effect: the operation has not ended", "entry", name, "asked",
				asked.Action, "by", asked.By)
			return d.owner.Outbox.DropRequest(asked)
		}
		return nil // its end may be about to be written
	case errors.Is(err, fs.ErrNotExist):
		return errors.Join(d.quarantineEntry(name, has, manual), d.finishDeliveryRequest(asked, isAsked))
	case err != nil:
		return err
	}
	entry, _, err := d.owner.Outbox.Read(name)
	if errors.Is(err, statefs.ErrNewerVersion) {
		return err
	}
	it := rec.Delivery(name.Place)
	if has && (it == nil || it.Kind != name.Kind || !isOpen(it)) {
		// The operation's run is no criterion here: optional steps have later runs.
		return errors.Join(d.removeEntry(name), d.finishDeliveryRequest(asked, isAsked))
	}
	if it == nil || !isOpen(it) {
		d.outbox.Forget(name)
		return d.finishDeliveryRequest(asked, isAsked)
	}
	if err != nil {
		entry = d.newEntry(rec, name) // the record has what it needs
	}
	switch {
	case isAsked && asked.Action == statefs.DropDelivery:
		d.abortUpload(ctx, rec, name, entry)
		err = d.dropDelivery(rec, name, asked.By, asked.Reason)
	case isAsked && has:
		err = d.retryDelivery(rec, name, entry, asked.By, asked.Reason)
	case has && !manual && it.State == statefs.DeliveryManual:
		err = d.retryDelivery(rec, name, entry, manualActor, "")
	case has && manual && it.State == statefs.DeliveryPending:
		err = d.holdDelivery(rec, name, entry)
	case has && manual:
		d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	case has:
		d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	case known:
		err = d.dropDelivery(rec, name, manualActor, "")
	}
	return errors.Join(err, d.finishDeliveryRequest(asked, isAsked && err == nil))
}

func isOpen(it *statefs.Delivery) bool {
	return it.State == statefs.DeliveryPending || it.State == statefs.DeliveryManual
}

func (d *Daemon) finishDeliveryRequest(asked statefs.DeliveryRequest, isAsked bool) error {
	if !isAsked {
		return nil
	}
	return d.owner.Outbox.DropRequest(asked)
}

// quarantineEntry moves an entry without an operation to corrupt/.
func (d *Daemon) quarantineEntry(name statefs.EntryName, has, manual bool) error {
	d.outbox.Forget(name)
	if !has {
		return nil
	}
	d.logger.Warn("an entry of the outbox has no record; it is set aside", "entry", name)
	d.owner.Outbox.Strike(name)
	return d.owner.Outbox.Quarantine(name, manual, "its operation has no record")
}
