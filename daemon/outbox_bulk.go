package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// RequestDeliveries retries or drops many entries, and returns when that is durable, with an error
// for each entry that is unchanged. A retry of many entries is a retry of their targets: each
// target is tried at once with one entry, and if that succeeds, its other entries follow.
func (d *Daemon) RequestDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) (map[statefs.EntryName]error, error) {
	select {
	case <-d.ready:
	case <-d.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	failed := make(map[statefs.EntryName]error)
	var asked []statefs.EntryName
	d.eachEntry(names, func(name statefs.EntryName) error { return d.actOnEntry(ctx, name, ask, args) },
		func(name statefs.EntryName, err error) {
			if err != nil {
				failed[name] = err
				return
			}
			asked = append(asked, name)
		})
	if ask == statefs.RetryDelivery && len(asked) > 0 {
		d.logger.Info("deliveries are tried again because somebody asked for them", "entries", len(asked), "by", args.By,
			"reason", args.Reason)
		d.outbox.ProbeNow(asked)
	}
	return failed, nil
}

// actOnEntry carries out a request for one of many entries, except for the attempt of a retry.
func (d *Daemon) actOnEntry(ctx context.Context, name statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch d.outbox.State(name) {
	case outbox.Waiting, outbox.Busy, outbox.Deferred:
		if ask == statefs.RetryDelivery {
			return nil // it is pending: there is nothing to write
		}
	case outbox.Unknown, outbox.Expected, outbox.Held:
	}
	return d.withOperation(ctx, name.ID, func(op *operation) error {
		rec, err := d.endedRecord(op, name.ID)
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || it.Kind != name.Kind || !isOpen(it) {
			return fmt.Errorf("delivery %s: there is nothing to do any more", name)
		}
		entry, _, err := d.owner.Outbox.Read(name)
		if errors.Is(err, statefs.ErrNewerVersion) {
			return err
		}
		if err != nil {
			entry = d.newEntry(rec, name) // the record has what it needs
		}
		if ask == statefs.RetryDelivery {
			return d.reviveDelivery(rec, name, entry, args.By)
		}
		d.abortUpload(ctx, rec, name, entry)
		return d.dropDelivery(rec, name, args.By, args.Reason)
	})
}
