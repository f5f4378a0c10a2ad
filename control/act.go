package control

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/acts"
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// act is POST /api/v1/operations/{id}/{skip,set,approve,reject}, and retry of a live one with steps.
func (s *Server) act(w *answer, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "wait", "step")
	if err != nil {
		return err
	}
	wait, err := waitFrom(values.Get("wait"))
	if err != nil {
		return err
	}
	args, err := s.argsFrom(w, r, values)
	if err != nil {
		return err
	}
	ask := statefs.Ask(path.Base(r.URL.Path))
	f := s.hub.follow(id, viewEnd)
	defer f.close()
	out, before, err := s.actOn(r.Context(), id, ask, args)
	if err != nil {
		return err
	}
	return s.sendAsked(w, r, f, &request{ask: ask, before: before}, out, wait)
}

// argsFrom reads the particulars of a request: those of the body, and the step that the URL may name. Who asks is who shows a token, or who the
// client says it is.
func (s *Server) argsFrom(w *answer, r *http.Request, values url.Values) (args statefs.Args, err error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return args, err
	}
	if _, err := catalog.ReadObject(body); err != nil { // encoding/json lets the last of two equal names win
		return args, refuse(http.StatusBadRequest, `The body must be a JSON object, as {"step": "split", "reason": "why"}: %s`, err)
	}
	if args, err = statefs.ParseArgs(body); err != nil {
		return args, err
	}
	if step := values.Get("step"); values.Has("step") {
		if step == "" || args.Step != "" && args.Step != step {
			return args, refuse(http.StatusBadRequest, "Invalid parameter 'step': %s must be the name of a step, the same as in the body", shownValue(step)).with("parameter", "step")
		}
		args.Step = step
	}
	if _, err := s.guard.creator(r); err != nil {
		return args, err
	}
	args.By = cmp.Or(s.asker(r), args.By)
	args.Unnamed = args.By == ""
	return args, nil
}

// asker says who makes a request about a step: whose token it shows, whatever else it says, or who it says in the header X-Created-By; "" when
// that is not known.
func (s *Server) asker(r *http.Request) string {
	if name, ok := s.guard.tokens.of(r); ok && name != "" {
		return printable(name, statefs.MaxBy)
	}
	by, _ := s.guard.creator(r) // one that cannot be taken is nobody
	return by
}

// actOn checks and writes a request that a person makes about a step. before is the record as it was then.
func (s *Server) actOn(ctx context.Context, id statefs.ID, ask statefs.Ask, args statefs.Args) (out asked, before *statefs.Record, err error) {
	rec, err := s.tree.ReadRecord(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, live := s.tree.State(id); live != nil {
			return out, before, s.goneOrNever(id)
		}
		// A foreign one decides for itself.
	case err != nil && !isUnreadable(err):
		return out, before, err
	case err == nil:
		state, err := s.tree.State(id)
		if errors.Is(err, statefs.ErrNotLive) && rec.Status.Terminal() {
			state, err = rec.Status, nil
		}
		if err != nil {
			return out, before, err
		}
		if args, err = acts.Check(s.definitionOf(rec), rec, state, ask, args); err != nil {
			return out, before, s.forAct(err, id, state)
		}
		before, args.Unnamed = rec, args.By == "" // and not whoever the daemon runs as
	}
	line, err := args.JSON()
	if err != nil {
		return out, before, err
	}
	err = s.tree.Request(ctx, id, ask, line)
	if errors.Is(err, statefs.ErrNotLive) {
		return out, before, notLive(id)
	}
	out = newAsked(id, string(ask))
	if before == nil && err == nil {
		if foreign, _ := s.isForeign(id); foreign {
			out.forStranger()
		}
	}
	if out.Step = args.Step; out.Step != "" {
		out.Message += ", step " + printable(args.Step, 64)
	}
	return out, before, err
}

// retryOf asks for a retry of a live operation, as one of many.
func (s *Server) retryOf(ctx context.Context, r *http.Request, id statefs.ID) error {
	if rec, err := s.tree.ReadRecord(id); err != nil || len(rec.Steps) == 0 {
		return s.request(ctx, id, string(statefs.Retry))
	}
	_, _, err := s.actOn(ctx, id, statefs.Retry, statefs.Args{By: s.asker(r)})
	return err
}

// forAct turns what is wrong with a request into an answer: 400 names what is wrong in it, 409 the state that has no use for it.
func (s *Server) forAct(err error, id statefs.ID, state statefs.State) error {
	wrong, ok := errors.AsType[*acts.RefusedError](err)
	if !ok {
		return err
	}
	text := printable(wrong.Text, 2000)
	if wrong.Member != "" {
		return refuse(http.StatusBadRequest, "%s", text).with("parameter", printable(wrong.Member, 200)).with("id", id)
	}
	return refuse(http.StatusConflict, "%s", text).with("id", id).with("state", state)
}

// lastAct is when a request of a kind was last carried out.
func lastAct(rec *statefs.Record, ask statefs.Ask) (at time.Time) {
	if rec == nil {
		return at
	}
	for i := range rec.Acts {
		if a := &rec.Acts[i]; a.Ask == string(ask) && a.At.After(at) {
			at = a.At
		}
	}
	return at
}

// actBody is the documented body of a request about a step.
const actBody = `{"step": "split", "reason": "why", "by": "anna"}, all of which may be left out`

// actRoutes are what a person asks about a step.
func (s *Server) actRoutes() []route {
	stepOf := parameter{name: "step", kind: "string", summary: "the step that is meant; the one at which the operation stands when not given"}
	row := func(ask statefs.Ask, summary, body string) route {
		return route{
			method: "POST", path: "/api/v1/operations/:id/" + string(ask), handle: s.act, summary: summary, query: []parameter{stepOf, waitOf}, body: body,
			answers: append([]response{{409, problemType, "The operation is in a state that has no use for it"}}, requested...),
		}
	}
	return []route{
		row(statefs.Skip, "Go on without a step that has failed, or waits for an approval", actBody),
		row(statefs.Set, "Correct parameters, or outputs of steps, for the next try", `{"values": {"params.path": "/srv/a", "steps.split.outputs.count": 3}, "reason": "why", "by": "anna"}`),
		row(statefs.Approve, "Let an operation go on that waits for an approval", actBody),
		row(statefs.Reject, "End an operation that waits for an approval", actBody),
	}
}
