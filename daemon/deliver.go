package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// What an operation leaves goes to the targets of its job, at least once each:
//
//	entry in outbox/ ─▶ sync ─▶ terminal record: pending ─▶ sync ─▶ ... ─▶ the target has it ─▶ record: delivered ─▶ sync ─▶ remove the entry
//
// An entry means nothing before its record is terminal with the same run and names the delivery, so what a crash leaves of an end that
// did not happen is dropped, and no crash leaves an end without its entries.

// address says in a record that is about to end what is delivered of it, and where. The error is one that mends itself.
func (d *Daemon) address(op *operation, rec *statefs.Record) error {
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
		name, err := target.Name(catalog.Values{Params: params, ID: rec.ID.String()})
		if it.Name, _, _ = strings.Cut(name, "?"); target.Webhook == nil { // a query may be a secret, which no record has
			it.Name = name
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
	packed := false
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State != statefs.DeliveryPending {
			continue
		}
		entry := &statefs.OutboxEntry{Run: rec.Run, CreatedAt: *rec.FinishedAt}
		if def, err := d.keptDefinition(rec); err == nil {
			if limit := def.Deliver[rec.Deliveries[i].Place-1].RetryFor; limit > 0 {
				until := rec.FinishedAt.Add(limit)
				entry.Until = &until
			}
		}
		if err := d.owner.WriteEntry(entryName(rec, i), entry); err != nil {
			return err
		}
		packed = true
	}
	if !packed {
		return nil
	}
	return d.owner.SyncOutbox()
}

func entryName(rec *statefs.Record, i int) statefs.EntryName {
	return statefs.EntryName{ID: rec.ID, Place: rec.Deliveries[i].Place, Kind: rec.Deliveries[i].Kind}
}

// ship has the entries of an end that is durable delivered.
func (d *Daemon) ship(rec *statefs.Record) {
	for i := range rec.Deliveries {
		if rec.Deliveries[i].State == statefs.DeliveryPending {
			name := entryName(rec, i)
			d.outbox.Add(name, d.targetName(rec, name))
		}
	}
}

// targetName is what entries have in common that go to the same target.
func (d *Daemon) targetName(rec *statefs.Record, name statefs.EntryName) string {
	if def, err := d.keptDefinition(rec); err == nil && name.Place <= len(def.Deliver) {
		return def.Deliver[name.Place-1].Target()
	}
	return name.String() // it will be refused
}

// takeOutbox has all that is in the outbox delivered, and drops what belongs to no end. A start does so before any look, so an entry whose record
// lives is of an end that did not happen; a sweep leaves it alone, because its end may be about to.
func (d *Daemon) takeOutbox(start bool) error {
	files, err := d.owner.Outbox()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range files.Pending {
		errs = append(errs, d.takeEntry(name, false, start))
	}
	for _, name := range files.Manual {
		errs = append(errs, d.takeEntry(name, true, start))
	}
	return errors.Join(errs...)
}

func (d *Daemon) takeEntry(name statefs.EntryName, manual, start bool) error {
	rec, err := d.owner.ReadRecord(name.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.logger.Warn("an entry of the outbox has no record; it is set aside", "entry", name)
		return d.owner.QuarantineEntry(name, manual, "its operation has no record")
	case err != nil:
		return fmt.Errorf("entry %s stays: %w", name, err)
	case !rec.Status.Terminal():
		if !start {
			return nil
		}
		d.logger.Info("an entry of the outbox is of an end that did not happen; it is dropped", "entry", name)
		return d.owner.RemoveEntry(name)
	}
	entry, _, err := d.owner.ReadEntry(name)
	if errors.Is(err, statefs.ErrNewerVersion) {
		return err
	}
	it := rec.Delivery(name.Place)
	if stale := err == nil && entry.Run != rec.Run; stale || it == nil || it.Kind != name.Kind || it.State == statefs.DeliveryDelivered || it.State == statefs.DeliveryDropped {
		return d.owner.RemoveEntry(name)
	}
	if !manual {
		d.outbox.Add(name, d.targetName(rec, name))
	}
	return nil
}

// deliver tries one entry.
func (d *Daemon) deliver(ctx context.Context, name statefs.EntryName) outbox.Outcome {
	rec, err := d.owner.ReadRecord(name.ID)
	if err != nil {
		d.logger.Error("the record of what is to be delivered cannot be read", "entry", name, "error", err)
		return outbox.Outcome{Settled: errors.Is(err, fs.ErrNotExist)} // a sweep sets it aside
	}
	entry, _, err := d.owner.ReadEntry(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.settled(ctx, name, statefs.DeliveryDropped, "", nil) // somebody removed it
	case errors.Is(err, statefs.ErrNewerVersion):
		return outbox.Outcome{Settled: true}
	case err != nil:
		entry = &statefs.OutboxEntry{Run: rec.Run, CreatedAt: rec.UpdatedAt} // the record says what it is
	}
	output, err := d.deliverTo(ctx, rec, name, entry)
	if err == nil {
		output.DeliveredAt = d.owner.Now()
		return d.settled(ctx, name, statefs.DeliveryDelivered, "", output)
	}
	if ctx.Err() != nil {
		return outbox.Outcome{} // the daemon stops; the next one tries it
	}
	now := d.owner.Now()
	entry.Attempts++
	entry.LastAt, entry.LastError = &now, err.Error()
	_, refused := errors.AsType[*outbox.RefusedError](err)
	if refused = refused || entry.Until != nil && now.After(*entry.Until); refused {
		d.abandon(ctx, rec, name, entry)
	}
	if written := d.owner.WriteEntry(name, entry); written != nil {
		d.logger.Error("a failed delivery could not be noted", "entry", name, "error", written)
		return outbox.Outcome{}
	}
	if refused {
		d.logger.Error("a result could not be delivered and waits for a person", "entry", name, "error", err)
		return d.settled(ctx, name, statefs.DeliveryManual, err.Error(), nil)
	}
	d.logger.Warn("a result could not be delivered; it is tried again", "entry", name, "attempts", entry.Attempts, "error", err)
	outcome := outbox.Outcome{}
	if later, ok := errors.AsType[*outbox.LaterError](err); ok {
		outcome.After = later.After
	}
	return outcome
}

// settled writes into the record what became of a delivery, and then does the same in the outbox.
func (d *Daemon) settled(ctx context.Context, name statefs.EntryName, state statefs.DeliveryStatus, reason string, output *statefs.DeliveryOutput) outbox.Outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // what the target has is written down, also while the daemon stops
	defer cancel()
	err := d.within(ctx, name.ID, func(op *operation) error {
		rec, err := d.owner.ReadRecord(name.ID)
		if err != nil {
			return err
		}
		switch {
		case op == nil:
		case op.state == statefs.Trailing && op.rec.Status.Terminal():
			rec = op.rec
		default:
			return errNotYet // its end is still being written
		}
		list := slices.Clone(rec.Deliveries) // others may read the old one
		for i := range list {
			if list[i].Place == name.Place {
				list[i].State, list[i].Error, list[i].Output = state, reason, output
			}
		}
		rec.Deliveries = list
		if err := d.owner.AmendRecord(rec); err != nil {
			return err
		}
		if state == statefs.DeliveryManual {
			return d.owner.HoldEntry(name)
		}
		return d.owner.RemoveEntry(name)
	})
	if err != nil {
		d.logger.Error("what became of a delivery could not be written down; it is repeated", "entry", name, "status", state, "error", err)
		return outbox.Outcome{}
	}
	d.logger.Info("delivery", "entry", name, "status", state)
	return outbox.Outcome{Settled: true}
}
