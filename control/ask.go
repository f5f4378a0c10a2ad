package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
)

// actions are what can be asked of many live operations at once, and controls what can be asked of one with a GET: a set has values, which do not
// fit there.
var (
	actions  = []string{string(statefs.Pause), string(statefs.Resume), string(statefs.Cancel), string(statefs.Retry)}
	controls = append(slices.Clone(actions), string(statefs.Skip), string(statefs.Approve), string(statefs.Reject))
)

// isAct reports whether an action is about a step.
func isAct(action string) bool {
	switch statefs.Ask(action) {
	case statefs.Retry, statefs.Skip, statefs.Set, statefs.Approve, statefs.Reject:
		return true
	case statefs.Pause, statefs.Resume, statefs.Cancel, statefs.Prioritize:
	}
	return false
}

// asked is the answer to a request.
type asked struct {
	Success bool       `json:"success"`
	ID      statefs.ID `json:"id"`
	Action  string     `json:"action"`
	Message string     `json:"message"`
	// Step is the step that is meant, of an operation with steps.
	Step string `json:"step,omitempty"`
	// State and TookEffect are there when the client waited, or when the request means nothing in the state that was seen.
	State      statefs.State `json:"state,omitempty"`
	TookEffect *bool         `json:"took_effect,omitempty"`
	// Pending says that the client waited and the request still stands.
	Pending bool `json:"pending,omitempty"`
	// Foreign says that another program keeps the operation, which acts on the request itself. Whether it did is not known unless its marker shows it.
	Foreign bool `json:"foreign,omitempty"`
}

// forStranger says in the answer that another program has to act.
func (a *asked) forStranger() {
	a.Foreign = true
	a.Message += ", which another program keeps: the request is in jobs/, and that program has to act on it"
}

// meansNothing says in the answer that the request changes nothing in the state in which the operation was found.
func (a *asked) meansNothing(found statefs.State) {
	a.State, a.TookEffect = found, new(bool)
	a.Message += ", which is " + string(found) + ": nothing to do"
}

// found returns the state in which a request meets an operation, "" when it is not known: it is a foreign one, which decides for
// itself, or another request is still to be carried out before.
func (s *Server) found(id statefs.ID) (state statefs.State, foreign bool, err error) {
	sight, err := s.tree.Look(id)
	if err != nil || len(sight.States) == 0 {
		return "", false, err
	}
	if foreign, err = s.isForeign(id); err != nil || foreign || len(sight.States) > 1 || len(sight.Asks) > 0 {
		return "", foreign, err
	}
	return sight.States[0], false, nil
}

func newAsked(id statefs.ID, action string) asked {
	title := strings.ToUpper(action[:1]) + action[1:]
	return asked{Success: true, ID: id, Action: action, Message: title + " requested for operation '" + id.String() + "'"}
}

// control is GET and POST /{group}/control. POST takes its parameters in the URL or as a JSON object.
func (s *Server) control(w *answer, r *http.Request, p httprouter.Params) error {
	group := p.ByName("group")
	values, err := query(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		if err := s.bodyParameters(w, r, values); err != nil {
			return err
		}
	} else if r.URL.RawQuery == "" {
		return s.controlPage(w, r, group)
	}
	for _, name := range []string{"id", "action"} {
		if len(values[name]) != 1 || values[name][0] == "" {
			return refuse(http.StatusBadRequest, "Missing required parameter '%s'", name).with("parameter", name)
		}
	}
	action := values.Get("action")
	if !slices.Contains(controls, action) {
		return refuse(http.StatusBadRequest, "Invalid action '%s': must be one of %s", printable(action, 32), strings.Join(controls, ", ")).with("parameter", "action")
	}
	id, err := statefs.ParseID(values.Get("id"))
	if err != nil {
		return refuse(http.StatusBadRequest, "Invalid operation ID: %s", err).with("parameter", "id")
	}
	known := []string{"id", "action"}
	if isAct(action) {
		known = append(known, "step", "reason", "by")
	}
	if err := onlyThese(values, known...); err != nil {
		return err
	}
	if of, err := s.groupOf(id); err != nil {
		return err
	} else if !of.is(group) {
		return notLive(id)
	}
	if r.Method == http.MethodHead {
		_, err := s.tree.State(id)
		if errors.Is(err, statefs.ErrNotLive) {
			return notLive(id)
		}
		return err
	}
	if staged, err := s.controlsStep(id, action, values); staged || err != nil {
		if err != nil {
			return err
		}
		args := statefs.Args{Step: values.Get("step"), Reason: values.Get("reason"), By: cmp.Or(s.asker(r), values.Get("by"))}
		out, _, err := s.actOn(r.Context(), id, statefs.Ask(action), args)
		if err != nil {
			return forEnded(err, id, action)
		}
		return s.sendJSON(w, r, http.StatusOK, out)
	}
	found, foreign, err := s.found(id)
	if err != nil {
		return err
	}
	if err := s.request(r.Context(), id, action); err != nil {
		return forEnded(err, id, action)
	}
	out := newAsked(id, action)
	if foreign {
		out.forStranger()
	}
	if found != "" && !statefs.Ask(action).Means(found) {
		out.meansNothing(found)
	}
	return s.sendJSON(w, r, http.StatusOK, out)
}

// controlsStep reports whether an action is about a step: a retry may be of an operation that has none.
func (s *Server) controlsStep(id statefs.ID, action string, values url.Values) (bool, error) {
	if action != string(statefs.Retry) || values.Has("step") || values.Has("reason") || values.Has("by") {
		return isAct(action), nil
	}
	rec, err := s.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) || isUnreadable(err) {
		return false, nil
	}
	return err == nil && len(rec.Steps) > 0 && !rec.Status.Terminal(), err
}

// forEnded adds to the refusal of a retry where an operation that has ended is done again: that makes a new one, which no GET does.
func forEnded(err error, id statefs.ID, action string) error {
	known, ok := errors.AsType[*refusal](err)
	if !ok || known.status != http.StatusNotFound || action != string(statefs.Retry) {
		return err
	}
	return refuse(known.status, "%s; POST /api/v1/operations/%s/retry makes a new one of one that has ended", known.text, id).with("id", id)
}

func (s *Server) request(ctx context.Context, id statefs.ID, action string) error {
	err := s.tree.Request(ctx, id, statefs.Ask(action), nil)
	if errors.Is(err, statefs.ErrNotLive) {
		return notLive(id)
	}
	return err
}

// ask is POST /api/v1/operations/{id}/{pause,resume,cancel}, and retry of a live one without steps.
func (s *Server) ask(w *answer, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "wait")
	if err != nil {
		return err
	}
	wait, err := waitFrom(values.Get("wait"))
	if err != nil {
		return err
	}
	ask := statefs.Ask(path.Base(r.URL.Path))
	f := s.hub.follow(id, viewEnd)
	defer f.close()
	q, err := s.requestFor(id, ask, wait)
	if err != nil {
		return err
	}
	found, foreign, err := s.found(id)
	if err != nil {
		return err
	}
	if err := s.request(r.Context(), id, string(ask)); err != nil {
		return err
	}
	out := newAsked(id, string(ask))
	if foreign {
		out.forStranger()
	}
	if q.nothing = found != "" && !ask.Means(found); q.nothing {
		out.meansNothing(found)
	}
	return s.sendAsked(w, r, f, q, out, wait)
}

// longestWait bounds the parameter wait.
const longestWait = 10 * time.Minute

// waitFrom reads a duration (5s, 1m30s) or a number of seconds.
func waitFrom(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 16); numErr == nil {
		wait, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || wait < 0 || wait > longestWait {
		return 0, refuse(http.StatusBadRequest, "Invalid parameter 'wait': %s must be a duration such as 5s, at most %s", shownValue(text), longestWait).with("parameter", "wait")
	}
	return wait, nil
}

// bodyParameters adds the members of a JSON body to the parameters of the URL.
func (s *Server) bodyParameters(w *answer, r *http.Request, values url.Values) error {
	body, err := s.readBody(w, r)
	if err != nil || body == nil {
		return err
	}
	var members map[string]string
	if err := json.Unmarshal(body, &members); err != nil {
		return refuse(http.StatusBadRequest, `The body must be a JSON object of strings, as in {"id": "...", "action": "pause"}`)
	}
	for name, value := range members {
		values.Add(name, value)
	}
	return nil
}
