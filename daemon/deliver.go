package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// What an operation leaves goes to the targets of its job, at least once each:
//
//	entry in outbox/ ─▶ sync ─▶ terminal record: pending ─▶ sync ─▶ ... ─▶ the target has it ─▶ record: delivered ─▶ sync ─▶ remove the entry
//
// An entry means nothing before its record is terminal and names the delivery, so what a crash leaves of an end that did not happen is dropped, and
// no crash leaves an end without its entries.

// address says in a record that is about to end what is delivered of it, and where. The error is one that mends itself.
func (d *Daemon) address(op *operation, rec *statefs.Record, rep *report) error {
	rec.Deliveries = nil // those of an end that the disk did not take: it may have been another one
	if def, err := d.keptDefinition(op.rec); err == nil && len(def.Deliver) == 0 {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if mends(err) {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // nobody knows a target; that the definition is lost was reported when it was to begin
	}
	for i, target := range def.Deliver {
		if rec.Status != statefs.Completed && target.On != catalog.OnEnded {
			continue
		}
		it := statefs.Delivery{Place: i + 1, Kind: target.Kind(), Send: string(target.Send), State: statefs.DeliveryPending}
		name, err := target.Name(catalog.Values{Params: params, ID: rec.ID.String(), Result: returnedOnly(rec, rep.member)})
		if it.Name = name; target.Webhook != nil { // the path and query of an address may be secrets, which no record has
			it.Name = fmt.Sprintf("%s (target %d)", target.Webhook.Host(), it.Place)
		}
		if err != nil {
			it.Name, it.State, it.Error = "", statefs.DeliveryManual, err.Error()
			if op.rec.Delivery(it.Place) == nil { // said once, also on a full disk
				d.say(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, err))
			}
		}
		rec.Deliveries = append(rec.Deliveries, it)
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
}

// pack makes durable what is to be delivered of an end that is about to be written.
func (d *Daemon) pack(rec *statefs.Record) error {
	var names []statefs.EntryName
	files := false
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			names = append(names, entryName(rec, i))
			files = files || rec.Deliveries[i].Send == string(catalog.SendArtifacts)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if files { // an entry does not hold what it delivers
		if err := d.owner.SyncArtifacts(rec.ID); err != nil {
			return err
		}
	}
	d.owner.NoteEntries(names...)
	for _, name := range names {
		d.outbox.Expect(name, *rec.FinishedAt)
		if err := d.owner.WriteEntry(name, d.newEntry(rec, name)); err != nil {
			return err
		}
	}
	return d.owner.SyncOutbox()
}

// newEntry is the entry of a delivery that was not tried yet.
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

// ship has the entries of an end that is durable delivered.
func (d *Daemon) ship(rec *statefs.Record) {
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			name := entryName(rec, i)
			d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
		}
	}
}

// targetOf is the target of an entry as the job defines it, nil when that cannot be read.
func (d *Daemon) targetOf(rec *statefs.Record, name statefs.EntryName) *catalog.Delivery {
	def, err := d.keptDefinition(rec)
	if err != nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind() != name.Kind {
		return nil
	}
	return def.Deliver[name.Place-1]
}

// destination is what entries have in common that go to the same target.
func (d *Daemon) destination(rec *statefs.Record, name statefs.EntryName) outbox.Destination {
	if target := d.targetOf(rec, name); target != nil {
		return outbox.Destination{Key: target.Target(), Label: target.Label()}
	}
	return outbox.Destination{Key: name.String(), Label: name.Kind} // it will be refused
}

// deliver tries one entry.
func (d *Daemon) deliver(ctx context.Context, name statefs.EntryName) outbox.Outcome {
	rec, err := d.owner.ReadRecord(name.ID)
	if err != nil {
		d.logger.Error("the record of what is to be delivered cannot be read", "entry", name, "error", err)
		return outbox.Outcome{Ours: true} // a sweep sets aside what has none
	}
	entry, _, err := d.owner.ReadEntry(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody removed it
		if err := d.lookAtEntry(ctx, name); err != nil {
			d.logger.Error("an entry of the outbox is gone, and that could not be written down", "entry", name, "error", err)
		}
		return outbox.Outcome{Ours: true}
	case errors.Is(err, statefs.ErrNewerVersion):
		return outbox.Outcome{Ours: true}
	case err != nil:
		entry = d.newEntry(rec, name) // the record says what it is
	}
	output, err := d.deliverTo(ctx, rec, name, entry)
	if err == nil {
		output.DeliveredAt = d.owner.Now()
		return d.settled(ctx, name, statefs.DeliveryDelivered, "", output)
	}
	if ctx.Err() != nil {
		return outbox.Outcome{Ours: true} // the daemon stops; the next one tries it
	}
	return d.failed(ctx, rec, name, entry, err)
}

// failed notes why a try failed, and says what follows from it.
func (d *Daemon) failed(ctx context.Context, rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry, reason error) outbox.Outcome {
	now := d.owner.Now()
	entry.Attempts++
	entry.LastAt, entry.LastError = &now, reason.Error()
	_, refused := errors.AsType[*outbox.RefusedError](reason)
	if !refused && entry.Until != nil && now.After(*entry.Until) {
		refused, reason = true, fmt.Errorf("%w; retry_for is over", reason)
		entry.LastError = reason.Error()
	}
	if refused {
		d.abandon(ctx, rec, name, entry)
	}
	if err := d.noteTry(ctx, rec, name, entry); err != nil {
		d.logger.Error("a failed delivery could not be noted", "entry", name, "error", err)
		return outbox.Outcome{Ours: true}
	}
	if refused {
		d.logger.Error("a result could not be delivered and waits for a person", "entry", name, "error", reason)
		return d.settled(ctx, name, statefs.DeliveryManual, reason.Error(), nil)
	}
	_, ours := errors.AsType[*outbox.OwnError](reason)
	d.deliveries.add(name.Kind, func(c *statefs.DeliveryCounts) {
		if ours {
			c.Deferred++
		} else {
			c.Failed++
		}
	})
	d.logger.Warn("a result could not be delivered; it is tried again", "entry", name, "attempts", entry.Attempts, "error", reason)
	outcome := outbox.Outcome{Ours: ours, Reason: reason.Error()}
	if later, ok := errors.AsType[*outbox.LaterError](reason); ok {
		outcome.After = later.After
	}
	return outcome
}

// noteTry writes an entry down that was tried, unless somebody gave it up meanwhile: then nobody else knows what was sent of it.
func (d *Daemon) noteTry(ctx context.Context, rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return d.within(ctx, name.ID, func(*operation) error {
		err := d.owner.RewriteEntry(name, entry)
		if errors.Is(err, fs.ErrNotExist) {
			d.abandon(ctx, rec, name, entry)
			return nil
		}
		return err
	})
}

// settled writes into the record what became of a delivery, and then does the same in the outbox.
func (d *Daemon) settled(ctx context.Context, name statefs.EntryName, state statefs.DeliveryStatus, reason string, output *statefs.DeliveryOutput) outbox.Outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // what the target has is written down, also while the daemon stops
	defer cancel()
	err := d.within(ctx, name.ID, func(op *operation) error {
		rec, err := d.endedRecord(op, name.ID)
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || state == statefs.DeliveryManual && it.State == statefs.DeliveryDropped {
			return nil // somebody gave it up while it was tried
		}
		if err := d.amendDelivery(rec, name, func(it *statefs.Delivery) { it.State, it.Error, it.Output = state, reason, output }); err != nil {
			return err
		}
		d.tellDelivery(rec, name.Place, "")
		if state == statefs.DeliveryManual {
			return d.holdEntry(rec, name)
		}
		return d.removeEntry(name)
	})
	if err != nil {
		d.logger.Error("what became of a delivery could not be written down; it is repeated", "entry", name, "status", state, "error", err)
		return outbox.Outcome{Ours: true}
	}
	d.deliveries.add(name.Kind, func(c *statefs.DeliveryCounts) {
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

// endedRecord is the record of an operation that has ended, within a look at it.
func (d *Daemon) endedRecord(op *operation, id statefs.ID) (*statefs.Record, error) {
	switch {
	case op == nil:
		return d.owner.ReadRecord(id)
	case op.state == statefs.Trailing && op.rec.Status.Terminal():
		return op.rec, nil
	}
	return nil, errNotYet // its end is still being written
}

// amendDelivery changes what a record says of a delivery, and makes that durable.
func (d *Daemon) amendDelivery(rec *statefs.Record, name statefs.EntryName, change func(*statefs.Delivery)) error {
	before := rec.Deliveries
	rec.Deliveries = slices.Clone(before) // others may read the old ones
	change(rec.Delivery(name.Place))
	if err := d.owner.AmendRecord(rec); err != nil {
		rec.Deliveries = before
		return err
	}
	return nil
}

// holdEntry has an entry wait for a person, which its record says.
func (d *Daemon) holdEntry(rec *statefs.Record, name statefs.EntryName) error {
	if err := d.owner.HoldEntry(name); err != nil {
		return err
	}
	d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
	return nil
}

// removeEntry removes an entry that is done with, which its record says.
func (d *Daemon) removeEntry(name statefs.EntryName) error {
	if err := d.owner.RemoveEntry(name); err != nil {
		return err
	}
	d.owner.StrikeEntry(name)
	d.outbox.Forget(name)
	return nil
}
