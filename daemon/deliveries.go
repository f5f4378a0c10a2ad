package daemon

import (
	"context"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

func (d *Daemon) newDeliveries() (*delivery.Deliveries, error) {
	c := &d.config
	return delivery.New(delivery.Config{
		Owner: c.Owner, Events: c.Events, Logger: c.Logger, Watch: c.Watch, WebhookAllow: c.WebhookAllow,
		S3PartBytes: c.S3PartBytes, Workers: c.OutboxWorkers, PerTarget: c.OutboxPerTarget, Probe: c.OutboxProbe,
		Ready: d.ready, Fail: d.fail, Definition: d.storedDefinition, Job: d.jobOfEnded, Ended: d.withEndedRecord,
		Amend: func(rec *statefs.Record) error { return d.commit(rec.ID, change{rec: rec}, amendEnd) },
	})
}

// jobOfEnded returns the definition of an ended operation and the values for the names of its deliveries.
func (d *Daemon) jobOfEnded(rec *statefs.Record) (def *catalog.Definition, values catalog.Values, err error) {
	def, params, err := d.definition(rec)
	switch {
	case isTransient(err):
		return nil, values, err
	case err != nil:
		return nil, values, nil //nolint:nilerr // it is lost for good
	}
	return def, catalog.Values{
		Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, work.MemberOf(rec.Footer)),
	}, nil
}

// withEndedRecord runs do with the terminal record of an operation while no reconcile of it runs.
func (d *Daemon) withEndedRecord(ctx context.Context, id statefs.ID, do func(*statefs.Record, error) error) error {
	return d.withOperation(ctx, id, func(op *operation) error {
		switch {
		case op == nil:
			return do(d.owner.ReadRecord(id))
		case op.state == statefs.Trailing && op.rec.Status.Terminal():
			return do(op.rec, nil)
		}
		return do(nil, delivery.ErrNotEnded)
	})
}

// addDeliveries lists the deliveries of an operation in a record that is about to become terminal.
// An error is transient.
func (d *Daemon) addDeliveries(op *operation, rec *statefs.Record, rep *work.Report) error {
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
	rec.Deliveries = d.deliveries.Plan(def, rec,
		catalog.Values{Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, rep.Member)})
	for _, it := range rec.Deliveries {
		if it.State == statefs.DeliveryManual && op.rec.Delivery(it.Place) == nil { // logged once, also when a full disk repeats this
			d.logLine(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, it.Error))
		}
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
}

// ReconcileEntry reconciles an entry of the outbox and carries out its request before it returns.
func (d *Daemon) ReconcileEntry(ctx context.Context, name statefs.EntryName) error {
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	return d.deliveries.Reconcile(ctx, name)
}

// AwaitEntry reports attempts to deliver an entry: done is closed when an attempt that begins from
// now on ends, and when the entry is settled or removed. The caller must call stop.
func (d *Daemon) AwaitEntry(name statefs.EntryName) (done <-chan struct{}, stop func()) {
	return d.deliveries.Await(name)
}

// RequestDeliveries retries or drops many entries, see delivery.Deliveries.Request.
func (d *Daemon) RequestDeliveries(ctx context.Context, names []statefs.EntryName, ask statefs.DeliveryAction,
	args statefs.Args,
) (map[statefs.EntryName]error, error) {
	if err := d.awaitReady(ctx); err != nil {
		return nil, err
	}
	return d.deliveries.Request(ctx, names, ask, args), nil
}

// Outbox returns the status of the outbox, without reading files.
func (d *Daemon) Outbox() statefs.OutboxStatus { return d.deliveries.Status() }

// OutboxLines returns the page of entries that match a query, see delivery.Deliveries.Lines.
func (d *Daemon) OutboxLines(q *statefs.OutboxQuery) (page []statefs.OutboxLine, total int) {
	return d.deliveries.Lines(q)
}

func (d *Daemon) awaitReady(ctx context.Context) error {
	select {
	case <-d.ready:
		return nil
	case <-d.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
