package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// Result returns a member of a result by its name, and false if it has none.
type Result = func(name string) (json.RawMessage, bool)

// FollowUp submits the following job once. An earlier daemon may have submitted it and died
// before the record named it. The existing operation then counts, even if the job or the result of
// the work has changed since. A refusal is final; err is transient.
func (t *Trigger) FollowUp(then *catalog.Then, values catalog.Values, since time.Time, result Result) (
	id statefs.ID, refusal, err error,
) {
	ctx := context.Background() // an end that has begun is carried through
	made, err := t.config.Intake.FindByKey(ctx, followUpKey(values.ID), since)
	if err != nil {
		return id, nil, err
	}
	if rec := made.Record; rec != nil && rec.Group == then.Group && rec.Job == then.Name {
		return rec.ID, nil, nil
	}
	request, refusal := t.followUpRequest(then, values, result)
	if refusal != nil {
		return id, refusal, nil
	}
	done, err := t.config.Intake.Submit(ctx, request)
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
func (t *Trigger) followUpRequest(then *catalog.Then, values catalog.Values, result Result) (submit.Request, error) {
	next := t.config.Catalog.Get(then.Group, then.Name)
	if next == nil {
		return submit.Request{}, fmt.Errorf("there is no job %s", then.Address())
	}
	arguments, err := then.Arguments(values, result)
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
