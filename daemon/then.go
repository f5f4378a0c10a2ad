package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	request, err := d.next(def.Then, catalog.Values{Params: params, ID: rec.ID.String()}, rep)
	var done []submit.Outcome
	if err == nil {
		done, err = d.config.Intake.Submit(context.Background(), request) // an end that is under way is carried to its end
		if err != nil && !submit.Refused(err) {
			return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
		}
	}
	if err != nil {
		rec.Then = &statefs.Follower{Error: err.Error()}
		d.say(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), err))
		d.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", err)
	} else {
		rec.Then = &statefs.Follower{ID: done[0].Record.ID}
		d.say(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // on a full disk the end happens again
	return nil
}

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
	name := "then " + values.ID
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
