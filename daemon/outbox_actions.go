package daemon

import "github.com/jobdir/jobdir/statefs"

// These functions carry out what a person requests for a delivery. No other reconcile of the
// operation runs concurrently, and the record is written first.

// retryDelivery tries an entry at once, even if its target is down.
func (d *Daemon) retryDelivery(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, by,
	reason string,
) error {
	if err := d.reviveDelivery(rec, name, entry, by); err != nil {
		return err
	}
	d.logger.Info("a delivery is tried again because somebody asked for it", "entry", name, "by", by, "reason", reason)
	d.outbox.RetryNow(name)
	return nil
}

// reviveDelivery makes an entry be tried as any other. If it waited for a person, it gets its full
// time limit again.
func (d *Daemon) reviveDelivery(rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry, by string,
) error {
	if _, manual, err := d.owner.Outbox.Has(name); err != nil {
		return err
	} else if manual || rec.Delivery(name.Place).State == statefs.DeliveryManual {
		if entry.Until != nil {
			until := d.owner.Now().Add(entry.Until.Sub(entry.CreatedAt))
			entry.Until = &until
		}
		if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) {
			it.State,
				it.Error = statefs.DeliveryPending, ""
		}); err != nil {
			return err
		}
		if err := d.owner.Outbox.Revive(name, entry); err != nil {
			return err
		}
		d.publishDelivery(rec, name.Place, by)
	}
	d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	return nil
}

// dropDelivery gives up a delivery.
func (d *Daemon) dropDelivery(rec *statefs.Record, name statefs.EntryName, by, reason string) error {
	if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) {
		it.State,
			it.Error = statefs.DeliveryDropped, ""
	}); err != nil {
		return err
	}
	d.logger.Warn("a delivery was given up", "entry", name, "by", by, "reason", reason)
	d.publishDelivery(rec, name.Place, by)
	d.deliveryCounts.add(name.Kind, func(c *statefs.DeliveryCounts) { c.Dropped++ })
	return d.removeEntry(name)
}

// holdDelivery records that a person keeps an entry from being tried.
func (d *Daemon) holdDelivery(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) error {
	reason := "somebody set it aside"
	if entry.LastError != "" {
		reason += "; the last try: " + entry.LastError
	}
	if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) {
		it.State, it.Error = statefs.DeliveryManual,
			reason
	}); err != nil {
		return err
	}
	d.logger.Info("a delivery was set aside by hand", "entry", name)
	d.publishDelivery(rec, name.Place, manualActor)
	// The entry's file already has the name X.failed_manual, unless it was moved back since.
	d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	return nil
}
