package daemon

import "github.com/jobdir/jobdir/statefs"

// What a person does with a delivery. All of it happens while nothing else looks at the operation, and the record says it first.

// retryDelivery has an entry tried at once, whatever the others at its target come to.
func (d *Daemon) retryDelivery(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, by, reason string) error {
	if err := d.reviveDelivery(rec, name, entry, by); err != nil {
		return err
	}
	d.logger.Info("a delivery is tried again because somebody asked for it", "entry", name, "by", by, "reason", reason)
	d.outbox.Ask(name)
	return nil
}

// reviveDelivery has an entry be tried as any other. One that waited for a person has as long as at first.
func (d *Daemon) reviveDelivery(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, by string) error {
	if _, manual, err := d.owner.HasEntry(name); err != nil {
		return err
	} else if manual || rec.Delivery(name.Place).State == statefs.DeliveryManual {
		if entry.Until != nil {
			until := d.owner.Now().Add(entry.Until.Sub(entry.CreatedAt))
			entry.Until = &until
		}
		if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) { it.State, it.Error = statefs.DeliveryPending, "" }); err != nil {
			return err
		}
		if err := d.owner.ReviveEntry(name, entry); err != nil {
			return err
		}
		d.tellDelivery(rec, name.Place, by)
	}
	d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
	return nil
}

// dropDelivery gives a delivery up.
func (d *Daemon) dropDelivery(rec *statefs.Record, name statefs.EntryName, by, reason string) error {
	if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) { it.State, it.Error = statefs.DeliveryDropped, "" }); err != nil {
		return err
	}
	d.logger.Warn("a delivery was given up", "entry", name, "by", by, "reason", reason)
	d.tellDelivery(rec, name.Place, by)
	d.deliveries.add(name.Kind, func(c *statefs.DeliveryCounts) { c.Dropped++ })
	return d.removeEntry(name)
}

// holdDelivery notes that a person keeps an entry from being tried.
func (d *Daemon) holdDelivery(rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) error {
	reason := "somebody set it aside"
	if entry.LastError != "" {
		reason += "; the last try: " + entry.LastError
	}
	if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) { it.State, it.Error = statefs.DeliveryManual, reason }); err != nil {
		return err
	}
	d.logger.Info("a delivery was set aside by hand", "entry", name)
	d.tellDelivery(rec, name.Place, byHand)
	d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt) // its file has that name already, unless it was moved back meanwhile
	return nil
}
