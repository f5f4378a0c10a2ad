package delivery

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// Recover adds the entries that an earlier daemon left to the outbox, drops entries without
// an end, and handles entries that were removed while no daemon ran. It runs before any reconcile,
// so an entry with a live record belongs to an end that did not happen.
func (d *Deliveries) Recover(ctx context.Context) error {
	entries, err := d.owner.Outbox.List()
	if err != nil {
		return err
	}
	listed, here, err := d.owner.Outbox.Listed()
	if err != nil {
		d.logger.Warn("what was removed from the outbox while no daemon ran is not noticed", "error", err)
	}
	names := slices.Concat(entries.Pending, entries.Manual, entries.Requested)
	for _, name := range names {
		delete(listed, name)
	}
	names = slices.AppendSeq(names, maps.Keys(listed))
	slices.SortFunc(names, func(a, b statefs.EntryName) int { return strings.Compare(a.String(), b.String()) })
	kept := make(map[statefs.EntryName]bool)
	d.eachEntry(slices.Compact(names), func(name statefs.EntryName) error {
		if listed[name] && !here {
			return d.restoreEntry(ctx, name)
		}
		return d.recoverEntry(ctx, name, listed[name])
	}, func(name statefs.EntryName, failed error) {
		if failed != nil {
			d.logger.Error("outbox entry left alone", "entry", name, "error", failed)
		}
		if sync, ok := errors.AsType[*files.SyncError](failed); ok {
			err = sync
		}
		if failed != nil || d.outbox.State(name) != outbox.Unknown {
			kept[name] = true
		}
	})
	if _, ok := errors.AsType[*files.SyncError](err); ok {
		return err
	}
	if err := d.owner.Outbox.BeginList(kept); err != nil {
		d.logger.Warn("what is removed from the outbox while no daemon runs will not be noticed", "error", err)
	}
	return nil
}

// recoverEntry is sync for the start of the daemon.
func (d *Deliveries) recoverEntry(ctx context.Context, name statefs.EntryName, known bool) error {
	rec, err := d.owner.ReadRecord(name.ID)
	if err != nil || rec.Status.Terminal() {
		return d.sync(ctx, rec, err, name, known)
	}
	if has, _, err := d.owner.Outbox.Has(name); err != nil || !has {
		return errors.Join(err, d.sync(ctx, rec, nil, name, false))
	}
	d.logger.Info("outbox entry removed: its operation has not ended", "entry", name)
	return d.owner.Outbox.Remove(name)
}

// restoreEntry recreates an open entry that was lost with its folder.
func (d *Deliveries) restoreEntry(ctx context.Context, name statefs.EntryName) error {
	rec, err := d.owner.ReadRecord(name.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	it := rec.Delivery(name.Place)
	if !rec.Status.Terminal() || it == nil || it.Kind != name.Kind || !isOpen(it.State) {
		return nil
	}
	d.logger.Warn("outbox entry restored: its folder was removed", "entry", name)
	if err := d.owner.Outbox.Write(name, d.newEntry(rec, name)); err != nil {
		return err
	}
	if it.State == statefs.DeliveryManual {
		err = d.owner.Outbox.Hold(name)
	} else {
		err = d.owner.Outbox.Sync()
	}
	if err != nil {
		return err
	}
	return d.sync(ctx, rec, nil, name, true)
}
