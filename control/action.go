package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// controlActions are the actions of GET /{group}/control, bulkActions those of POST /api/v1/bulk.
var (
	controlActions = actionNames(func(spec *statefs.ActionSpec) bool { return spec.Control })
	bulkActions    = actionNames(func(spec *statefs.ActionSpec) bool { return spec.Bulk })
)

func actionNames(matches func(*statefs.ActionSpec) bool) (names []string) {
	for _, spec := range statefs.ActionSpecs() {
		if matches(spec) {
			names = append(names, string(spec.Action))
		}
	}
	return names
}

// markForeign notes in the reply that another program has to act.
func markForeign(a *api.Answer) {
	a.Foreign = true
	a.Message += ", which belongs to another program: the request is in jobs/, and that program has to act on it"
}

// actions are the requests about live operations.
type actions struct {
	tree  *statefs.Tree
	view  *viewer
	live  *liveTable
	pages *pages
}

// observedState returns the state that a new request would meet, or "" when that is unknown: the operation is foreign,
// which decides for itself, or an earlier request is pending.
func (s *actions) observedState(id statefs.ID) (state statefs.State, foreign bool, err error) {
	sight, err := s.tree.ObserveAll(id)
	if err != nil || len(sight.States) == 0 {
		return "", false, err
	}
	if foreign, err = s.live.isForeign(id); err != nil || foreign || len(sight.States) > 1 || len(sight.Requests) > 0 {
		return "", foreign, err
	}
	return sight.States[0], false, nil
}

// writeRequest writes a request, as statefs.Tree.RequestThen does. If it would change nothing, it is not written: the
// reply says so, or with strict the error.
func (s *actions) writeRequest(id statefs.ID, ask statefs.Action, args json.RawMessage, strict bool,
	made func(args json.RawMessage),
) (api.Answer, error) {
	out := newActionReply(id, ask)
	state, foreign, err := s.observedState(id)
	if err != nil {
		return out, err
	}
	if ask == statefs.Retry && state == statefs.FailedManual {
		if rec, err := s.tree.ReadRecord(id); err == nil && rec.Lost() {
			_, err := acts.Check(nil, rec, state, ask, statefs.Args{})
			return out, stepActionError(err, id, state)
		}
	}
	// A request that is being carried out may be changing the state: it left jobs/ before the state was read.
	if state != "" && !ask.AppliesIn(state) && !s.tree.HasTakenRequest(id) {
		again, _, err := s.observedState(id)
		switch {
		case err != nil:
			return out, err
		case again == state && strict:
			return out, front.Refuse(http.StatusConflict, "%s", ask.Unchanged(id, state)).With("id", id).With("state",
				state).With("changed", false)
		case again == state:
			out.State, out.TookEffect, out.Changed = state, new(bool), new(bool)
			out.Message = ask.Unchanged(id, state)
			return out, nil
		}
	}
	err = s.tree.RequestThen(id, ask, args, made)
	if errors.Is(err, statefs.ErrNotLive) {
		return out, s.alreadyEnded(id)
	}
	if foreign {
		markForeign(&out)
	}
	return out, err
}

// alreadyEnded returns the refusal of a request for an operation that is not live: it names the result, if known.
func (s *actions) alreadyEnded(id statefs.ID) error {
	rec, err := s.tree.ReadDurableEnd(id)
	if err != nil || rec == nil {
		if err := s.view.gone(id); err != nil {
			return err
		}
		return notLive(id)
	}
	late := notLive(id)
	late.Text += ": it is already " + string(rec.Status)
	return late.With("state", rec.Status)
}

func newActionReply(id statefs.ID, action statefs.Action) api.Answer {
	return api.Answer{Success: true, ID: id, Action: action, Message: action.Requested(id)}
}

// controlRequest is a request to /{group}/control.
type controlRequest struct {
	*front.Query

	group, action string
	id            statefs.ID
}

// readControl parses a request to /{group}/control. If it has no parameters, readControl sends the page and returns
// nil.
func (s *actions) readControl(w *front.Response, r *front.Request) (*controlRequest, error) {
	c := &controlRequest{group: r.Param("group")}
	values, err := r.Values()
	if err != nil {
		return nil, err
	}
	switch {
	case r.IsForm():
		_, err = r.Confirmed()
	case r.Method == http.MethodPost:
		err = r.BodyParameters(values)
	case len(values) == 0:
		return nil, s.pages.controlPage(w, r, c.group)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"id", "action"} {
		if values.Get(name) == "" {
			return nil, front.Refuse(http.StatusBadRequest, "Missing required parameter '%s'", name).With("parameter", name)
		}
	}
	if c.action = values.Get("action"); !slices.Contains(controlActions, c.action) {
		return nil, front.Refuse(http.StatusBadRequest, "Invalid action '%s': must be one of %s", front.Printable(c.action, 32),
			strings.Join(controlActions, ", ")).With("parameter", "action")
	}
	if c.id, err = statefs.ParseID(values.Get("id")); err != nil {
		return nil, front.Refuse(http.StatusBadRequest, "Invalid operation ID: %s", err).With("parameter", "id")
	}
	known := front.Named("id", "action", "strict")
	if spec := statefs.Action(c.action).Spec(); spec.Force != "" {
		known = append(known, forceOf)
	} else if spec.OnStep {
		known = append(known, front.Named("step", "reason", "by")...)
	}
	c.Query = front.QueryOf(values, known)
	return c, c.Err()
}

// control is GET and POST /{group}/control. POST takes parameters from the URL or from a JSON object.
func (s *actions) control(w *front.Response, r *front.Request) error {
	c, err := s.readControl(w, r)
	if err != nil || c == nil {
		return err
	}
	id, action := c.id, c.action
	if of, err := s.live.groupOf(id, false); err != nil {
		return err
	} else if !of.is(c.group) {
		return s.wrongGroup(c, of)
	}
	if r.Method == http.MethodHead {
		_, err := s.tree.State(id)
		if errors.Is(err, statefs.ErrNotLive) {
			return s.alreadyEnded(id)
		}
		return err
	}
	staged, err := s.controlsStep(c)
	if err != nil {
		return err
	}
	var out api.Answer
	if staged {
		args := statefs.Args{
			Step: c.Get("step"), Reason: c.Get("reason"),
			By: cmp.Or(requester(r), c.Get("by")),
		}
		out, err = s.requestStepAction(id, statefs.Action(action), args, nil)
	} else {
		ask, strict := actionOptions(statefs.Action(action), c.Query)
		if err := c.Err(); err != nil {
			return err
		}
		out, err = s.writeRequest(id, ask, nil, strict, nil)
	}
	if err != nil {
		return withRetryHint(err, id, action)
	}
	return w.SendJSON(http.StatusOK, out)
}

// controlsStep reports whether an action concerns a step; a retry may also be of an operation without steps.
func (s *actions) controlsStep(c *controlRequest) (bool, error) {
	if c.action != string(statefs.Retry) || c.Has("step") || c.Has("reason") || c.Has("by") {
		return statefs.Action(c.action).Spec().OnStep, nil
	}
	rec, err := recordOf(s.tree, c.id)
	return rec != nil && len(rec.Steps) > 0 && !rec.Status.Terminal(), err
}

// wrongGroup refuses to control an operation through another group's path. It names the right path of a live operation,
// and the group and the state of an ended one.
func (s *actions) wrongGroup(c *controlRequest, of membership) error {
	id, asked := c.id, front.Printable(c.group, 64)
	where := "/api/v1/operations/" + id.String()
	if _, err := s.tree.State(id); errors.Is(err, statefs.ErrNotLive) {
		rec, err := s.tree.ReadDurableEnd(id)
		if err != nil || rec == nil {
			return s.alreadyEnded(id)
		}
		ended := front.Refuse(http.StatusNotFound, "Operation '%s' is not of group '%s' but of '%s', and it is already %s: see %s",
			id, asked, rec.Group, rec.Status, where)
		return withRetryHint(ended.With("id", id).With("state", rec.Status).With("location", where), id, c.action)
	} else if err != nil {
		return err
	}
	if of.group != "" {
		where = "/" + of.group + "/control"
	}
	return front.Refuse(http.StatusNotFound, "Operation '%s' is not of group '%s': control it by %s", id, asked, where).
		With("id", id).With("location", where)
}

// withRetryHint adds to the refusal of a retry how to retry an ended operation: that makes a new operation, which no
// GET does.
func withRetryHint(err error, id statefs.ID, action string) error {
	known, ok := errors.AsType[*front.RefusalError](err)
	if !ok || known.Status != http.StatusNotFound || action != string(statefs.Retry) {
		return err
	}
	out := *known
	out.Text += fmt.Sprintf("; POST /api/v1/operations/%s/retry repeats a finished operation as a new one", id)
	return &out
}

// actionOptions parses the parameters force and strict.
func actionOptions(ask statefs.Action, q *front.Query) (_ statefs.Action, strict bool) {
	if other := ask.Spec().Force; q.Boolean("force", false) && other != "" {
		ask = other
	}
	return ask, q.Boolean("strict", false)
}

// requestAction is POST /api/v1/operations/{id}/{action} for actions that concern no step, and retry of a live
// operation without steps.
func (s *actions) requestAction(w *front.Response, r *front.Request) error {
	ask := statefs.Action(path.Base(r.URL.Path))
	known := []string{"wait", "strict"}
	if ask.Spec().Force != "" {
		known = append(known, "force")
	}
	for _, param := range ask.Spec().Params {
		known = append(known, param.Name)
	}
	id, q := idAndQuery(r, known...)
	wait := q.Wait()
	ask, strict := actionOptions(ask, q)
	args := actionParams(ask, q)
	if err := q.Err(); err != nil {
		return err
	}
	waiter := s.view.daemon.AwaitRequest(id, ask)
	defer waiter.Leave()
	out, err := s.writeRequest(id, ask, args, strict, waiter.Made)
	if err != nil {
		return err
	}
	return s.sendActionReply(w, r, waiter, out, wait)
}

// actionParams parses the parameters of an action into the arguments of the request file, nil if none is given.
func actionParams(ask statefs.Action, q *front.Query) (args json.RawMessage) {
	params := make(map[string]int)
	for _, param := range ask.Spec().Params {
		if !q.Has(param.Name) {
			continue
		}
		text := q.Get(param.Name)
		n, err := strconv.Atoi(text)
		if err != nil || n < -param.Most || n > param.Most {
			q.Refuse(front.Invalid(param.Name, "'%s' is not a whole number from %d to %d", front.Printable(text, 32), -param.Most,
				param.Most))
		}
		params[param.Name] = n
	}
	if len(params) > 0 {
		args, _ = json.Marshal(params) // numbers always encode
	}
	return args
}

// confirmControl answers a navigation to GET /{group}/control with parameters.
func (s *actions) confirmControl(w *front.Response, r *front.Request) error {
	c, err := s.readControl(w, r)
	if err != nil || c == nil {
		return err
	}
	verb := strings.ToUpper(c.action[:1]) + c.action[1:]
	shown := &confirmation{Verb: verb, Rows: [][2]string{{"id", c.id.String()}, {"action", c.action}}}
	for _, name := range []string{"step", "force", "strict", "reason", "by"} {
		if c.Has(name) {
			shown.Rows = append(shown.Rows, [2]string{name, c.Get(name)})
		}
	}
	return s.pages.sendConfirmation(w, r, &page{Title: verb + " an operation of " + r.Param("group") + "?", Confirm: shown})
}
