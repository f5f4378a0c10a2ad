package delivery

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

// Plan lists the deliveries of an operation whose record is about to become terminal, with the names at their
// targets. A delivery that can have no name waits for a person.
func (d *Deliveries) Plan(def *catalog.Definition, rec *statefs.Record, values catalog.Values) []statefs.Delivery {
	var out []statefs.Delivery
	for i, to := range def.Deliver {
		if rec.Status != statefs.Completed && !to.OnEnded {
			continue
		}
		it := statefs.Delivery{Place: i + 1, Kind: to.Kind.Name, Send: string(to.Send), State: statefs.DeliveryPending}
		name, err := to.Name(values)
		if it.Name = name; !to.Named() { // an address may contain secrets, which records never contain
			it.Name = fmt.Sprintf("%s (target %d)", to.Target(d.sender.shared).Place().Label, it.Place)
		}
		if err != nil {
			it.Name, it.State, it.Error = "", statefs.DeliveryManual, err.Error()
		}
		out = append(out, it)
	}
	return out
}

// Write durably writes the outbox entries of a terminal record that is about to be written.
func (d *Deliveries) Write(rec *statefs.Record) error {
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
		if err := d.owner.Output.SyncArtifacts(rec.ID); err != nil {
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
func (d *Deliveries) newEntry(rec *statefs.Record, name statefs.EntryName) *statefs.OutboxEntry {
	entry := &statefs.OutboxEntry{Run: rec.Run, CreatedAt: *rec.FinishedAt}
	if target := d.sender.targetOf(rec, name); target != nil && target.RetryFor > 0 {
		entry.Until = new(rec.FinishedAt.Add(target.RetryFor))
	}
	return entry
}

func entryName(rec *statefs.Record, i int) statefs.EntryName {
	return statefs.EntryName{ID: rec.ID, Place: rec.Deliveries[i].Place, Kind: rec.Deliveries[i].Kind}
}

// Enqueue passes the entries of a durable terminal record to the outbox.
func (d *Deliveries) Enqueue(rec *statefs.Record) {
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			name := entryName(rec, i)
			d.outbox.Add(name, d.destination(rec, name), *rec.FinishedAt)
		}
	}
}

// destination returns the target of an entry as the outbox groups entries by it.
func (d *Deliveries) destination(rec *statefs.Record, name statefs.EntryName) outbox.Destination {
	if target := d.sender.targetOf(rec, name); target != nil {
		return target.Kind.Destination(target.Settings)
	}
	return outbox.Destination{Key: name.String(), Label: name.Kind} // the delivery will be refused
}

// try tries to deliver one entry.
func (d *Deliveries) try(ctx context.Context, name statefs.EntryName) outbox.Outcome {
	rec, err := d.owner.ReadRecord(name.ID)
	if err != nil {
		d.logger.Error("record of a delivery cannot be read", "entry", name, "error", err)
		return outbox.Outcome{LocalFault: true} // a sweep sets aside an entry without a record
	}
	entry, _, err := d.owner.Outbox.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // another program or a person removed the entry
		if err := d.Reconcile(ctx, name); err != nil {
			d.logger.Error("removal of an outbox entry not recorded", "entry", name, "error", err)
		}
		return outbox.Outcome{LocalFault: true}
	case errors.Is(err, statefs.ErrNewerVersion):
		return outbox.Outcome{LocalFault: true}
	case err != nil:
		entry = d.newEntry(rec, name) // the entry cannot be read; the record has what a try needs
	}
	output, err := d.sender.send(ctx, rec, name, entry)
	if err == nil {
		output.DeliveredAt = d.owner.Now()
		return d.recordOutcome(ctx, name, statefs.DeliveryDelivered, "", output)
	}
	if ctx.Err() != nil {
		return outbox.Outcome{LocalFault: true} // the daemon stops; the next daemon tries again
	}
	return d.failed(ctx, rec, name, entry, err)
}

// failed records a failed try and returns whether and when it is repeated.
func (d *Deliveries) failed(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
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
		d.sender.abort(ctx, rec, name, entry)
	}
	if err := d.recordTry(ctx, rec, name, entry); err != nil {
		d.logger.Error("failed delivery not recorded", "entry", name, "error", err)
		return outbox.Outcome{LocalFault: true}
	}
	if refused {
		d.logger.Error("delivery failed and waits for a person", "entry", name, "error", reason)
		return d.recordOutcome(ctx, name, statefs.DeliveryManual, reason.Error(), nil)
	}
	_, ours := errors.AsType[*outbox.LocalError](reason)
	d.counts.add(name.Kind, func(c *statefs.DeliveryCounts) {
		if ours {
			c.Deferred++
		} else {
			c.Failed++
		}
	})
	d.logger.Warn("delivery failed, retrying", "entry", name, "attempts",
		entry.Attempts, "error", reason)
	outcome := outbox.Outcome{LocalFault: ours, Reason: reason.Error()}
	if later, ok := errors.AsType[*outbox.RetryAfterError](reason); ok {
		outcome.After = later.After
	}
	return outcome
}

// recordTry writes back an entry after a try. If the entry was removed concurrently, recordTry
// aborts its upload, because no other place names it.
func (d *Deliveries) recordTry(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return d.config.Ended(ctx, name.ID, func(*statefs.Record, error) error {
		err := d.owner.Outbox.Rewrite(name, entry)
		if errors.Is(err, fs.ErrNotExist) {
			d.sender.abort(ctx, rec, name, entry)
			return nil
		}
		return err
	})
}

// recordOutcome writes the outcome of a delivery into the record, and then removes or holds
// the entry.
func (d *Deliveries) recordOutcome(ctx context.Context, name statefs.EntryName, state statefs.DeliveryStatus,
	reason string, output *statefs.DeliveryOutput,
) outbox.Outcome {
	// an outcome is recorded even while the daemon stops
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := d.config.Ended(ctx, name.ID, func(rec *statefs.Record, err error) error {
		if err != nil {
			return err
		}
		it := rec.Delivery(name.Place)
		if it == nil || state == statefs.DeliveryManual && it.State == statefs.DeliveryDropped {
			return nil // the delivery was dropped during the try
		}
		if err := d.amend(rec, name, state, reason, output); err != nil {
			return err
		}
		d.publish(rec, name.Place, "")
		if state != statefs.DeliveryManual {
			return d.removeEntry(name)
		}
		if err := d.owner.Outbox.Hold(name); err != nil {
			return err
		}
		d.outbox.Hold(name, d.destination(rec, name).Label, *rec.FinishedAt)
		return nil
	})
	if err != nil {
		d.logger.Error("outcome of a delivery not recorded; it is delivered again", "entry", name, "status",
			state, "error", err)
		return outbox.Outcome{LocalFault: true}
	}
	d.counts.add(name.Kind, func(c *statefs.DeliveryCounts) {
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

// amend durably changes the state of a delivery in a record.
func (d *Deliveries) amend(rec *statefs.Record, name statefs.EntryName, state statefs.DeliveryStatus, reason string,
	output *statefs.DeliveryOutput,
) error {
	before := rec.Deliveries
	rec.Deliveries = slices.Clone(before) // the old slice may be read concurrently
	it := rec.Delivery(name.Place)
	it.State, it.Error, it.Output = state, reason, output
	if err := d.config.Amend(rec); err != nil {
		rec.Deliveries = before
		return err
	}
	return nil
}

// removeEntry removes an entry whose outcome is in the record.
func (d *Deliveries) removeEntry(name statefs.EntryName) error {
	if err := d.owner.Outbox.Remove(name); err != nil {
		return err
	}
	d.owner.Outbox.Strike(name)
	d.outbox.Forget(name)
	return nil
}
