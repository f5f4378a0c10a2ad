package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// The results of an operation are delivered to the targets of its job, at least once each:
//
//	entry in outbox/ ─▶ sync ─▶ terminal record: pending ─▶ sync ─▶ ...
//	... ─▶ the target has it ─▶ record: delivered ─▶ sync ─▶ remove the entry
//
// An entry has no effect until its record is terminal and names the delivery. So an entry that a
// crash leaves without such a record is dropped, and no crash leaves a terminal record without its
// entries.

// addDeliveries lists the deliveries of an operation in a record that is about to become terminal.
// An error is transient.
func (d *Daemon) addDeliveries(op *operation, rec *statefs.Record, rep *report) error {
	rec.Deliveries = nil // drops those of an earlier attempt to write an end, which may differ
	if def, err := d.storedDefinition(op.rec); err == nil && len(def.Deliver) == 0 {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if isTransient(err) {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // no target is known; the lost definition was reported when the operation was to start
	}
	for i, to := range def.Deliver {
		if rec.Status != statefs.Completed && !to.OnEnded {
			continue
		}
		it := statefs.Delivery{Place: i + 1, Kind: to.Kind.Name, Send: string(to.Send), State: statefs.DeliveryPending}
		name, err := to.Name(catalog.Values{Params: params, ID: rec.ID.String(), Result: returnedOnly(rec, rep.member)})
		if it.Name = name; !to.Named() { // an address may contain secrets, which records never contain
			it.Name = fmt.Sprintf("%s (target %d)", to.Target(d.shared).Place().Label, it.Place)
		}
		if err != nil {
			it.Name, it.State, it.Error = "", statefs.DeliveryManual, err.Error()
			if op.rec.Delivery(it.Place) == nil { // logged once, also when a full disk repeats this code
				d.logLine(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, err))
			}
		}
		rec.Deliveries = append(rec.Deliveries, it)
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
}

// writeEntries durably writes the outbox entries of a terminal record that is about to be written.
func (d *Daemon) writeEntries(rec *statefs.Record) error {
	var names []statefs.EntryName
	files := false
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			names = append(names, entryName(rec, i))
			files = files || rec.Deliveries[i].Send == string(outbox.SendArtifacts)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if files { // the artifacts are not part of the entry
		if err := d.owner.SyncArtifacts(rec.ID); err != nil {
			return err
		}
	}
	d.owner.Outbox.Note(names...)
	for _, name := range names {
		d.outbox.Expect(name, *rec.FinishedAt)
		if err := d.owner.Outbox.Write(name, d.newEntry(rec, name)); err != nil {
			return err
		}
	}
	return d.owner.Outbox.Sync()
}

// newEntry returns the entry of a delivery that was not tried yet.
func (d *Daemon) newEntry(rec *statefs.Record, name statefs.EntryName) *statefs.OutboxEntry {
	entry := &statefs.OutboxEntry{Run: rec.Run, CreatedAt: *rec.FinishedAt}
	if target := d.targetOf(rec, name); target != nil && target.RetryFor > 0 {
		until := rec.FinishedAt.Add(target.RetryFor)
		entry.Until = &until
	}
	return entry
}

func entryName(rec *statefs.Record, i int) statefs.EntryName {
	return statefs.EntryName{ID: rec.ID, Place: rec.Deliveries[i].Place, Kind: rec.Deliveries[i].Kind}
}

// enqueueDeliveries passes the entries of a durable terminal record to the outbox.
func (d *Daemon) enqueueDeliveries(rec *statefs.Record) {
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			name := entryName(rec, i)
			d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
		}
	}
}

// targetOf returns the target of an entry as the job defines it, or nil if the definition cannot be
// read or no longer matches.
func (d *Daemon) targetOf(rec *statefs.Record, name statefs.EntryName) *catalog.Delivery {
	def, err := d.storedDefinition(rec)
	if err != nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind.Name != name.Kind {
		return nil
	}
	return def.Deliver[name.Place-1]
}

// destination returns the target of an entry as the outbox groups entries by it.
func (d *Daemon) destination(rec *statefs.Record, name statefs.EntryName) outbox.Destination {
	if target := d.targetOf(rec, name); target != nil {
		return target.Kind.Destination(target.Settings)
	}
	return outbox.Destination{Key: name.String(), Label: name.Kind} // the delivery will be refused
}

// deliver tries to deliver one entry.
func (d *Daemon) deliver(ctx context.Context, name statefs.EntryName) outbox.Outcome {
	rec, err := d.owner.ReadRecord(name.ID)
	if err != nil {
		d.logger.Error("the record of what is to be delivered cannot be read", "entry", name, "error", err)
		return outbox.Outcome{LocalFault: true} // a sweep sets aside an entry without a record
	}
	entry, _, err := d.owner.Outbox.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // another program or a person removed the entry
		if err := d.reconcileEntry(ctx, name); err != nil {
			d.logger.Error("an entry of the outbox is gone, and that could not be written down", "entry", name, "error", err)
		}
		return outbox.Outcome{LocalFault: true}
	case errors.Is(err, statefs.ErrNewerVersion):
		return outbox.Outcome{LocalFault: true}
	case err != nil:
		entry = d.newEntry(rec, name) // the entry cannot be read; the record has what a try needs
	}
	output, err := d.deliverTo(ctx, rec, name, entry)
	if err == nil {
		output.DeliveredAt = d.owner.Now()
		return d.recordDeliveryOutcome(ctx, name, statefs.DeliveryDelivered, "", output)
	}
	if ctx.Err() != nil {
		return outbox.Outcome{LocalFault: true} // the daemon stops; the next daemon tries again
	}
	return d.deliveryFailed(ctx, rec, name, entry, err)
}

// deliveryFailed records a failed try and returns whether and when it is repeated.
func (d *Daemon) deliveryFailed(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry, reason error,
) outbox.Outcome {
	now := d.owner.Now()
	entry.Attempts++
	entry.LastAt, entry.LastError = &now, reason.Error()
	_, refused := errors.AsType[*outbox.RefusedError](reason)
	if !refused && entry.Until != nil && now.After(*entry.Until) {
		refused, reason = true, fmt.Errorf("%w; retry_for is over", reason)
		entry.LastError = reason.Error()
	}
	if refused {
		d.abortUpload(ctx, rec, name, entry)
	}
	if err := d.recordTry(ctx, rec, name, entry); err != nil {
		d.logger.Error("a failed delivery could not be noted", "entry", name, "error", err)
		return outbox.Outcome{LocalFault: true}
	}
	if refused {
		d.logger.Error("a result could not be delivered and waits for a person", "entry", name, "error", reason)
		return d.recordDeliveryOutcome(ctx, name, statefs.DeliveryManual, reason.Error(), nil)
	}
	_, ours := errors.AsType[*outbox.LocalError](reason)
	d.deliveryCounts.add(name.Kind, func(c *statefs.DeliveryCounts) {
		if ours {
			c.Deferred++
		} else {
			c.Failed++
		}
	})
	d.logger.Warn("a result could not be delivered; it is tried again", "entry", name, "attempts",
		entry.Attempts, "error", reason)
	outcome := outbox.Outcome{LocalFault: ours, Reason: reason.Error()}
	if later, ok := errors.AsType[*outbox.RetryAfterError](reason); ok {
		outcome.After = later.After
	}
	return outcome
}

// recordTry writes back an entry after a try. If the entry was removed concurrently, recordTry
// aborts its upload, because no other place names it.
func (d *Daemon) recordTry(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return d.withOperation(ctx, name.ID, func(*operation) error {
		err := d.owner.Outbox.Rewrite(name, entry)
		if errors.Is(err, fs.ErrNotExist) {
			d.abortUpload(ctx, rec, name, entry)
			return nil
		}
		return err
	})
}

// recordDeliveryOutcome writes the outcome of a delivery into the record, and then removes or holds
// the entry.
func (d *Daemon) recordDeliveryOutcome(ctx context.Context, name statefs.EntryName, state statefs.DeliveryStatus,
	reason string, output *statefs.DeliveryOutput,
) outbox.Outcome {
	// an outcome is recorded even while the daemon stops
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := d.withOperation(ctx, name.ID, func(op *operation) error {
		rec, err := d.endedRecord(op, name.ID)
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || state == statefs.DeliveryManual && it.State == statefs.DeliveryDropped {
			return nil // the delivery was dropped during the try
		}
		settle := func(it *statefs.Delivery) { it.State, it.Error, it.Output = state, reason, output }
		if err := d.amendDelivery(rec, name, settle); err != nil {
			return err
		}
		d.publishDelivery(rec, name.Place, "")
		if state == statefs.DeliveryManual {
			return d.holdEntry(rec, name)
		}
		return d.removeEntry(name)
	})
	if err != nil {
		d.logger.Error("what became of a delivery could not be written down; it is repeated", "entry", name, "status",
			state, "error", err)
		return outbox.Outcome{LocalFault: true}
	}
	d.deliveryCounts.add(name.Kind, func(c *statefs.DeliveryCounts) {
		if state == statefs.DeliveryManual {
			c.Refused++
			return
		}
		c.Delivered++
		c.Bytes += uint64(max(output.Bytes, 0))
	})
	d.logger.Info("delivery", "entry", name, "status", state)
	return outbox.Outcome{Settled: true}
}

// endedRecord returns the record of an operation whose terminal record is written. Its caller
// excludes other reconciles of the operation.
func (d *Daemon) endedRecord(op *operation, id statefs.ID) (*statefs.Record, error) {
	switch {
	case op == nil:
		return d.owner.ReadRecord(id)
	case op.state == statefs.Trailing && op.rec.Status.Terminal():
		return op.rec, nil
	}
	return nil, errNotReady // its terminal record is still being written
}

// amendDelivery durably changes a delivery in a record.
func (d *Daemon) amendDelivery(rec *statefs.Record, name statefs.EntryName, edit func(*statefs.Delivery)) error {
	before := rec.Deliveries
	rec.Deliveries = slices.Clone(before) // the old slice may be read concurrently
	edit(rec.Delivery(name.Place))
	if err := d.commit(rec.ID, change{rec: rec}, amendEnd); err != nil {
		rec.Deliveries = before
		return err
	}
	return nil
}

// holdEntry makes an entry wait for a person, after the record was changed accordingly.
func (d *Daemon) holdEntry(rec *statefs.Record, name statefs.EntryName) error {
	if err := d.owner.Outbox.Hold(name); err != nil {
		return err
	}
	d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	return nil
}

// removeEntry removes an entry whose outcome is in the record.
func (d *Daemon) removeEntry(name statefs.EntryName) error {
	if err := d.owner.Outbox.Remove(name); err != nil {
		return err
	}
	d.owner.Outbox.Strike(name)
	d.outbox.Forget(name)
	return nil
}
