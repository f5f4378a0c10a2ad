package daemon

import (
	"context"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// OutboxSettings are the settings of deliveries.
type OutboxSettings = delivery.Settings

func (d *Daemon) newDeliveries() (*delivery.Deliveries, error) {
	c := &d.config
	return delivery.New(delivery.Config{
		Owner: c.Owner, Events: c.Events, Logger: c.Logger, Watch: c.Watch, Settings: c.Outbox,
		AwaitReady: d.awaitReady, Fail: d.fail, Definition: d.storedDefinition, Job: d.jobOfEnded, Ended: d.withEndedRecord,
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
	rec.Deliveries = d.Deliveries.Plan(def, rec,
		catalog.Values{Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, rep.Member)})
	for _, it := range rec.Deliveries {
		if it.State == statefs.DeliveryManual && op.rec.Delivery(it.Place) == nil { // logged once, also when a full disk repeats this
			d.logLine(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, it.Error))
		}
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
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
