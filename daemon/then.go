package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// errNotYet has the end of an operation wait until submits are taken: until every live operation is known.
var errNotYet = errors.New("submits are not taken yet")

// followUp submits the job that follows an operation which is completed, and notes in its record what came of that. It comes before the end:
// a daemon that dies in between does it again, under the same idempotency key, and it is the same operation. The error is one that mends
// itself.
func (d *Daemon) followUp(op *operation, rec *statefs.Record, rep *report) error {
	if rec.Status != statefs.Completed || rec.Then != nil || d.config.Intake == nil {
		return nil
	}
	def, params, err := d.definition(op.rec)
	if err != nil || def.Then == nil {
		return nil //nolint:nilerr // it has run, so it could be read; a definition that was lost since promises nothing
	}
	if !isClosed(d.ready) {
		return errNotYet
	}
	follower, refusal, err := d.submitNext(def.Then, catalog.Values{Params: params, ID: rec.ID.String()}, rec.CreatedAt, rep)
	if err != nil {
		return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
	}
	if refusal != nil {
		rec.Then = &statefs.Follower{Error: refusal.Error()}
		d.say(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), refusal))
		d.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", refusal)
	} else {
		rec.Then = &statefs.Follower{ID: follower}
		d.say(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // on a full disk the end happens again
	return nil
}

// submitNext submits the job that follows, once. An earlier daemon may have done so and been killed before the record said it: what it made
// stands, also when the job or what the work returned is another one by now. A refusal is for good, err mends itself.
func (d *Daemon) submitNext(then *catalog.Then, values catalog.Values, since time.Time, rep *report) (id statefs.ID, refusal, err error) {
	ctx := context.Background() // an end that is under way is carried to its end
	made, err := d.config.Intake.Made(ctx, followerKey(values.ID), since)
	if err != nil {
		return id, nil, err
	}
	if rec := made.Record; rec != nil && rec.Group == then.Group && rec.Job == then.Name {
		return rec.ID, nil, nil
	}
	request, refusal := d.next(then, values, rep)
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

// followerKey is the idempotency key of what follows an operation.
func followerKey(id string) string { return "then " + id }

// next is the submit of the job that follows.
func (d *Daemon) next(then *catalog.Then, values catalog.Values, rep *report) (submit.Request, error) {
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
	name := followerKey(values.ID)
	return submit.Request{Definition: next, Params: params, Options: submit.Options{IdempotencyKey: name}, By: name, Owed: true}, nil
}

// member gives what the work has returned under a name.
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
