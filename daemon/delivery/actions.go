package delivery

import (
	"context"
	"fmt"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// These functions carry out what a person requests for a delivery. No other reconcile of the
// operation runs concurrently, and the record is written first.

// retry tries an entry at once, even if its target is down.
func (d *Deliveries) retry(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, by,
	reason string,
) error {
	if err := d.revive(rec, name, entry, by); err != nil {
		return err
	}
	d.logger.Info("delivery retried on request", "entry", name, "by", by, "reason", reason)
	d.outbox.RetryNow(name)
	return nil
}

// revive makes an entry be tried as any other. If it waited for a person, it gets its full
// time limit again.
func (d *Deliveries) revive(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, by string) error {
	if _, manual, err := d.owner.Outbox.Has(name); err != nil {
		return err
	} else if manual || rec.Delivery(name.Place).State == statefs.DeliveryManual {
		if entry.Until != nil {
			entry.Until = new(d.owner.Now().Add(entry.Until.Sub(entry.CreatedAt)))
		}
		if err := d.amend(rec, name, statefs.DeliveryPending, "", nil); err != nil {
			return err
		}
		if err := d.owner.Outbox.Revive(name, entry); err != nil {
			return err
		}
		d.publish(rec, name.Place, by)
	}
	d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	return nil
}

// drop gives up a delivery.
func (d *Deliveries) drop(rec *statefs.Record, name statefs.EntryName, by, reason string) error {
	if err := d.amend(rec, name, statefs.DeliveryDropped, "", nil); err != nil {
		return err
	}
	d.logger.Warn("a delivery was given up", "entry", name, "by", by, "reason", reason)
	d.publish(rec, name.Place, by)
	d.counts.add(name.Kind, func(c *statefs.DeliveryCounts) { c.Dropped++ })
	return d.removeEntry(name)
}

// hold records that a person keeps an entry from being tried.
func (d *Deliveries) hold(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) error {
	reason := "a person set it aside"
	if entry.LastError != "" {
		reason += "; the last try: " + entry.LastError
	}
	if err := d.amend(rec, name, statefs.DeliveryManual, reason, nil); err != nil {
		return err
	}
	d.logger.Info("a person set a delivery aside", "entry", name)
	d.publish(rec, name.Place, manualActor)
	// The entry's file already has the name X.failed_manual, unless it was moved back since.
	d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	return nil
}

// Request retries or drops many entries, and returns when that is durable, with an error
// for each entry that is unchanged. A retry of many entries is a retry of their targets: each
// target is tried at once with one entry, and if that succeeds, its other entries follow.
func (d *Deliveries) Request(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) (map[statefs.EntryName]error, error) {
	if err := d.config.AwaitReady(ctx); err != nil {
		return nil, err
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
		d.logger.Info("deliveries retried on request", "entries", len(asked), "by", args.By,
			"reason", args.Reason)
		d.outbox.ProbeNow(asked)
	}
	return failed, nil
}

// actOnEntry carries out a request for one of many entries, except for the attempt of a retry.
func (d *Deliveries) actOnEntry(ctx context.Context, name statefs.EntryName, ask statefs.DeliveryAction,
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
	return d.config.Ended(ctx, name.ID, func(rec *statefs.Record, err error) error {
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || it.Kind != name.Kind || !isOpen(it.State) {
			return fmt.Errorf("delivery %s: there is nothing to do any more", name)
		}
		entry, err := d.readEntry(rec, name)
		if err != nil {
			return err
		}
		if ask == statefs.RetryDelivery {
			return d.revive(rec, name, entry, args.By)
		}
		d.sender.abort(ctx, rec, name, entry)
		return d.drop(rec, name, args.By, args.Reason)
	})
}
