package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// stepAction is POST /api/v1/operations/{id}/{skip,set,approve,reject}, and retry of a live operation with steps.
func (s *actions) stepAction(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r, "wait", "step")
	wait := q.Wait()
	args := argsFrom(r, q)
	if err := q.Err(); err != nil {
		return err
	}
	ask := statefs.Action(path.Base(r.URL.Path))
	waiter := s.view.daemon.AwaitRequest(id, ask)
	defer waiter.Leave()
	out, err := s.requestStepAction(id, ask, args, waiter.Made)
	if err != nil {
		return err
	}
	return s.sendActionReply(w, r, waiter, out, wait)
}

// argsFrom returns the arguments of a request: the body, and the step that the URL may name. The requester is the owner
// of the token, or else the name that the client gives.
func argsFrom(r *front.Request, q *front.Query) statefs.Args {
	body, err := r.ReadBody()
	q.Refuse(err)
	if _, err := catalog.ReadObject(body); err != nil { // encoding/json would accept duplicate names
		q.Refuse(front.Refuse(http.StatusBadRequest,
			`The body must be a JSON object, as {"step": "split", "reason": "why"}: %s`, err))
	}
	args, err := statefs.ParseArgs(body)
	q.Refuse(err)
	if step := q.Get("step"); q.Has("step") {
		if step == "" || args.Step != "" && args.Step != step {
			q.Refuse(front.Invalid("step", "%s must be the name of a step, the same as in the body", front.Quote(step)))
		}
		args.Step = step
	}
	by, err := r.Creator()
	q.Refuse(err)
	args.By = cmp.Or(by, args.By)
	args.Unnamed = args.By == ""
	return args
}

// requester returns who makes a request about a step, "" if unknown.
func requester(r *front.Request) string {
	by, _ := r.Creator() // an invalid header is ignored
	return by
}

// requestStepAction checks and writes a person's request about a step.
func (s *actions) requestStepAction(id statefs.ID, ask statefs.Action, args statefs.Args,
	made func(args json.RawMessage),
) (out api.Answer, err error) {
	rec, err := statefs.ReadSubmitted(s.tree, id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, live := s.tree.State(id); live != nil {
			return out, s.alreadyEnded(id)
		}
		// The program of a foreign operation decides for itself.
	case err != nil && !isUnreadable(err):
		return out, err
	case err == nil:
		state, err := s.tree.State(id)
		if errors.Is(err, statefs.ErrNotLive) && rec.Status.Terminal() {
			state, err = rec.Status, nil
		}
		if err != nil {
			return out, err
		}
		if args, err = acts.Check(s.view.definitionOf(rec), rec, state, ask, args); err != nil {
			return out, stepActionError(err, id, state)
		}
		args.Unnamed = args.By == "" // not recorded as the user of the daemon, who owns the file
	}
	line, err := args.JSON()
	if err != nil {
		return out, err
	}
	err = s.tree.RequestThen(id, ask, line, made)
	if errors.Is(err, statefs.ErrNotLive) {
		return out, s.alreadyEnded(id)
	}
	out = newActionReply(id, ask)
	if rec == nil && err == nil {
		if foreign, _ := s.live.isForeign(id); foreign {
			markForeign(&out)
		}
	}
	if out.Step = args.Step; out.Step != "" {
		out.Message += ", step " + front.Printable(args.Step, 64)
	}
	return out, err
}

// requestRetry requests a retry of one live operation of a bulk request.
func (s *actions) requestRetry(r *front.Request, id statefs.ID) error {
	if rec, err := s.tree.ReadRecord(id); err != nil || len(rec.Steps) == 0 {
		_, err := s.writeRequest(id, statefs.Retry, nil, true, nil)
		return err
	}
	_, err := s.requestStepAction(id, statefs.Retry, statefs.Args{By: requester(r)}, nil)
	return err
}

// stepActionError maps a refused request to an answer: 400 for an invalid request, 409 for a state to which it does not
// apply.
func stepActionError(err error, id statefs.ID, state statefs.State) error {
	wrong, ok := errors.AsType[*acts.RefusedError](err)
	if !ok {
		return err
	}
	text := front.Printable(wrong.Text, 2000)
	if wrong.Member != "" {
		return front.Refuse(http.StatusBadRequest, "%s", text).With("parameter", front.Printable(wrong.Member, 200)).With("id", id)
	}
	return front.Refuse(http.StatusConflict, "%s", text).With("id", id).With("state", state)
}

// stepActionBody is the documented body of a request about a step.
const stepActionBody = `{"step": "split", "reason": "why", "by": "anna"}; each member may be left out`
