package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// errNotReady delays the end of an operation until the daemon accepts submits, which it does once
// it knows every live operation.
var errNotReady = errors.New("submits are not taken yet")

// recordFollowUp submits the job that follows a completed operation, and notes the outcome in the
// record. It runs before the end is committed. If the daemon dies in between, the next one submits
// again under the same idempotency key and gets the same operation. The returned error is
// transient.
func (d *Daemon) recordFollowUp(op *operation, rec *statefs.Record, rep *report) error {
	if rec.Status != statefs.Completed || rec.Then != nil || d.config.Intake == nil {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if err != nil || def.Then == nil {
		return nil //nolint:nilerr // a definition lost since the run promises no follow-up
	}
	if !isClosed(d.ready) {
		return errNotReady
	}
	follower, refusal, err := d.submitFollowUp(def.Then,
		catalog.Values{Params: params, ID: rec.ID.String()}, rec.CreatedAt, rep)
	if err != nil {
		return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
	}
	if refusal != nil {
		rec.Then = &statefs.Follower{Error: refusal.Error()}
		d.logLine(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), refusal))
		d.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", refusal)
	} else {
		rec.Then = &statefs.Follower{ID: follower}
		d.logLine(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // after a full disk this is repeated
	return nil
}

// submitFollowUp submits the following job once. An earlier daemon may have submitted it and died
// before the record named it. The existing operation then counts, even if the job or the result of
// the work has changed since. A refusal is final; err is transient.
func (d *Daemon) submitFollowUp(then *catalog.Then, values catalog.Values, since time.Time, rep *report) (id statefs.ID,
	refusal, err error,
) {
	ctx := context.Background() // an end that has begun is carried through
	made, err := d.config.Intake.FindByKey(ctx, followUpKey(values.ID), since)
	if err != nil {
		return id, nil, err
	}
	if rec := made.Record; rec != nil && rec.Group == then.Group && rec.Job == then.Name {
		return rec.ID, nil, nil
	}
	request, refusal := d.followUpRequest(then, values, rep)
	if refusal != nil {
		return id, refusal, nil
	}
	done, err := d.config.Intake.Submit(ctx, request)
	if submit.Refused(err) {
		return id, err, nil
	}
	if err != nil {
		return id, nil, err
	}
	return done[0].Record.ID, nil, nil
}

// followUpKey is the idempotency key of the operation that follows id.
func followUpKey(id string) string { return "then " + id }

// followUpRequest builds the submit of the following job.
func (d *Daemon) followUpRequest(then *catalog.Then, values catalog.Values, rep *report) (submit.Request, error) {
	next := d.config.Catalog.Get(then.Group, then.Name)
	if next == nil {
		return submit.Request{}, fmt.Errorf("there is no job %s", then.Address())
	}
	arguments, err := then.Arguments(values, rep.member)
	if err != nil {
		return submit.Request{}, err
	}
	params, err := next.BindJSON(arguments)
	if err != nil {
		return submit.Request{}, err
	}
	name := followUpKey(values.ID)
	return submit.Request{
		Definition: next, Params: params, Options: submit.Options{IdempotencyKey: name}, By: name,
		SkipAdmission: true,
	}, nil
}

// member returns a member of the work's result by name.
func (r *report) member(name string) (json.RawMessage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.result {
		if f.name == name {
			return f.value, true
		}
	}
	return nil, false
}
