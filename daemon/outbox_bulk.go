package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// AskDeliveries has many entries retried or given up, and returns when that is durable, with an error for each that is left as it is. A retry of many means
// their targets: each of these is tried with one entry at once, however many there are, and when that goes through all the others go.
func (d *Daemon) AskDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAsk, args statefs.Args) (map[statefs.EntryName]error, error) {
	select {
	case <-d.ready:
	case <-d.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	failed := make(map[statefs.EntryName]error)
	var asked []statefs.EntryName
	d.eachEntry(names, func(name statefs.EntryName) error { return d.actOnEntry(ctx, name, ask, args) }, func(name statefs.EntryName, err error) {
		if err != nil {
			failed[name] = err
			return
		}
		asked = append(asked, name)
	})
	if ask == statefs.RetryDelivery && len(asked) > 0 {
		d.logger.Info("deliveries are tried again because somebody asked for them", "entries", len(asked), "by", args.By, "reason", args.Reason)
		d.outbox.Prompt(asked)
	}
	return failed, nil
}

// actOnEntry does what is asked of one of many entries, but for the try that a retry is about.
func (d *Daemon) actOnEntry(ctx context.Context, name statefs.EntryName, ask statefs.DeliveryAsk, args statefs.Args) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch d.outbox.Standing(name) {
	case outbox.Waiting, outbox.Busy, outbox.Deferred:
		if ask == statefs.RetryDelivery {
			return nil // it is pending: nothing has to be written for that
		}
	case outbox.Unknown, outbox.Expected, outbox.Held:
	}
	return d.within(ctx, name.ID, func(op *operation) error {
		rec, err := d.endedRecord(op, name.ID)
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || it.Kind != name.Kind || !isOpen(it) {
			return fmt.Errorf("delivery %s: there is nothing to do any more", name)
		}
		entry, _, err := d.owner.ReadEntry(name)
		if errors.Is(err, statefs.ErrNewerVersion) {
			return err
		}
		if err != nil {
			entry = d.newEntry(rec, name) // the record says what it is
		}
		if ask == statefs.RetryDelivery {
			return d.reviveDelivery(rec, name, entry, args.By)
		}
		d.abandon(ctx, rec, name, entry)
		return d.dropDelivery(rec, name, args.By, args.Reason)
	})
}
