package daemon

import (
	"context"
	"errors"
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
func (e *ends) jobOfEnded(rec *statefs.Record) (def *catalog.Definition, values catalog.Values, err error) {
	def, params, err := e.definition(rec)
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
func (e *ends) withEndedRecord(ctx context.Context, id statefs.ID, do func(*statefs.Record, error) error) error {
	return e.withOperation(ctx, id, func(op *operation) error {
		switch {
		case op == nil:
			return do(e.owner.ReadRecord(id))
		case op.state == statefs.Trailing && op.rec.Status.Terminal():
			return do(op.rec, nil)
		}
		return do(nil, delivery.ErrNotEnded)
	})
}

// addDeliveries lists the deliveries of an operation in a record that is about to become terminal.
// An error is transient.
func (e *ends) addDeliveries(op *operation, rec *statefs.Record, rep *work.Report) error {
	rec.Deliveries = nil // drops those of an earlier attempt to write an end, which may differ
	if def, err := e.storedDefinition(op.rec); err == nil && len(def.Deliver) == 0 {
		return nil
	}
	def, params, err := e.definition(op.rec)
	if isTransient(err) {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // no target is known; the lost definition was reported when the operation was to start
	}
	rec.Deliveries = e.Deliveries.Plan(def, rec,
		catalog.Values{Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, rep.Member)})
	for _, it := range rec.Deliveries {
		if it.State == statefs.DeliveryManual && op.rec.Delivery(it.Place) == nil { // logged once, also when a full disk repeats this
			e.logLine(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, it.Error))
		}
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
}

// errNotReady delays the end of an operation until the daemon accepts submits, which it does once
// it knows every live operation.
var errNotReady = errors.New("submits are not taken yet")

// recordFollowUp submits the job that follows a completed operation, and notes the outcome in the
// record. It runs before the end is committed. If the daemon dies in between, the next one submits
// again under the same idempotency key and gets the same operation. The returned error is
// transient.
func (e *ends) recordFollowUp(op *operation, rec *statefs.Record, rep *work.Report) error {
	if rec.Status != statefs.Completed || rec.Then != nil {
		return nil
	}
	def, params, err := e.definition(op.rec)
	if err != nil || def.Then == nil {
		return nil //nolint:nilerr // a definition lost since the run promises no follow-up
	}
	if !isClosed(e.ready) {
		return errNotReady
	}
	follower, refusal, err := e.Trigger.FollowUp(def.Then,
		catalog.Values{Params: params, ID: rec.ID.String()}, rec.CreatedAt, rep.Member)
	if err != nil {
		return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
	}
	if refusal != nil {
		rec.Then = &statefs.Follower{Error: refusal.Error()}
		e.logLine(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), refusal))
		e.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", refusal)
	} else {
		rec.Then = &statefs.Follower{ID: follower}
		e.logLine(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // after a full disk this is repeated
	return nil
}
