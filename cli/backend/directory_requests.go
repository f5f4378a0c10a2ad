package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

func (d *directory) Submit(_ context.Context, data json.RawMessage) (*Submitted, error) {
	// Refuse malformed input now: the next daemon would have no user to report it to.
	if _, err := submit.ParseFile(data); err != nil {
		return nil, exit.Usagef("%w", err)
	}
	name, err := d.tree.PutSubmission(data)
	if err != nil {
		return nil, err
	}
	return &Submitted{File: name}, nil
}

// TypedParams gives text parameters the types of the job in the definition folders.
func (d *directory) TypedParams(_ context.Context, group, job string, pairs map[string]string) (any, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	jobs := catalog.New(catalog.Options{Dirs: d.conf.Jobs, Extra: d.catalog.Extra})
	_ = jobs.Reload() // a job with errors is reported as not found
	def := jobs.Get(group, job)
	if def == nil {
		return nil, exit.Usagef("no daemon answers, and %s/%s is in none of the configured folders of jobs, "+
			"so the types of its parameters are not known: give them with --params '{...}'", group, job)
	}
	values := url.Values{}
	for name, text := range pairs {
		values.Set(name, text)
	}
	params, err := def.Bind(values)
	if err != nil {
		return nil, exit.Usagef("%s/%s: %w", group, job, err)
	}
	return params.JSON(), nil
}

func (d *directory) Request(ctx context.Context, id statefs.ID, q *Request) (answer *client.Answer, err error) {
	if q.Action.Spec().OnStep {
		answer, err = d.requestStep(ctx, id, q.Action, q.Args, q.Values)
	} else {
		var args json.RawMessage
		if len(q.Params) > 0 {
			object := make(map[string]int)
			for _, param := range q.Params {
				object[param.Name] = param.Value
			}
			args, _ = json.Marshal(object) // numbers by name cannot fail
		}
		answer, err = d.put(ctx, id, q.Action, args)
	}
	if err == nil {
		answer.Pending = q.Wait > 0 && answer.Changed == nil
	}
	return answer, err
}

// put leaves a request in the directory. If it would change nothing, it is not written, as by a daemon.
func (d *directory) put(ctx context.Context, id statefs.ID, ask statefs.Action, args json.RawMessage,
) (*client.Answer, error) {
	if state, ok := d.settledState(id); ok && !ask.AppliesIn(state) {
		return &client.Answer{
			Success: true, ID: id, Action: ask, Message: ask.Unchanged(id, state), State: state, TookEffect: new(bool), Changed: new(bool),
		}, nil
	}
	if err := d.tree.Request(ctx, id, ask, args); err != nil {
		return nil, err
	}
	state, _ := d.tree.State(id) // "" if it has just ended
	return &client.Answer{Success: true, ID: id, Action: ask, Message: ask.Requested(id), State: state}, nil
}

// settledState returns the state of an operation of this storage that no earlier request can still change.
func (d *directory) settledState(id statefs.ID) (state statefs.State, ok bool) {
	found, err := d.tree.ObserveAll(id)
	if err != nil || len(found.States) != 1 || len(found.Requests) > 0 || d.tree.HasTakenRequest(id) {
		return "", false
	}
	_, err = d.tree.ReadRecord(id) // an operation of another program has none, and that program decides
	return found.States[0], err == nil
}

func (d *directory) Retry(ctx context.Context, id statefs.ID, q *Retry) (*client.Retried, error) {
	var answer *client.Answer
	var err error
	if rec, failed := d.tree.ReadRecord(id); failed == nil && len(rec.Steps) > 0 || q.Args.Step != "" {
		answer, err = d.requestStep(ctx, id, statefs.Retry, q.Args, nil)
	} else {
		answer, err = d.put(ctx, id, statefs.Retry, nil)
	}
	if errors.Is(err, statefs.ErrNotLive) {
		return nil, d.without("an operation that has ended is started again by the daemon: start it with 'jobdir serve'")
	}
	if err != nil {
		return nil, err
	}
	if answer.Changed == nil {
		answer.Message += "; it waits on disk for a daemon"
	}
	return &client.Retried{Answer: answer}, nil
}

// requestStep leaves a request about a step in the directory, if the record shows that it can have an
// effect.
func (d *directory) requestStep(ctx context.Context, id statefs.ID, ask statefs.Action, args statefs.Args,
	pairs map[string]string,
) (*client.Answer, error) {
	rec, err := d.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return d.put(ctx, id, ask, nil) // the program that owns the foreign operation decides
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", ask, id, err)
	}
	state, err := d.tree.State(id)
	if errors.Is(err, statefs.ErrNotLive) && rec.Status.Terminal() && ask != statefs.Retry {
		state, err = rec.Status, nil // refused as by a daemon
	}
	if err != nil {
		return nil, err
	}
	def, _ := catalog.Stored(d.tree, rec.Definition) // nil if it cannot be read
	if len(pairs) > 0 {
		types := make(map[string]string)
		if def != nil {
			for i := range def.Params {
				types[def.Params[i].Name] = string(def.Params[i].Type)
			}
		}
		if err := setValues(types, pairs, &args); err != nil {
			return nil, err
		}
	}
	if args, err = acts.Check(def, rec, state, ask, args); err != nil {
		return nil, exit.Usagef("%w", err)
	}
	line, err := args.JSON()
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	if err := d.tree.Request(ctx, id, ask, line); err != nil {
		return nil, err
	}
	answer := &client.Answer{
		Success: true, ID: id, Action: ask, Step: args.Step,
		Message: ask.Requested(id), State: state,
	}
	if args.Step != "" {
		answer.Message += ", step " + args.Step
	}
	return answer, nil
}
