package control

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// submit is POST /{group}/{job}.
func (s *Server) submit(w *answer, r *http.Request, p httprouter.Params) error {
	def, err := s.definition(p.ByName("group"), p.ByName("name"))
	if err != nil {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := submitOptions(def, values); err != nil {
		return err
	}
	wait, applied, err := submitWait(r, values)
	if err != nil {
		return err
	}
	options, err := submit.FromQuery(values)
	if err != nil {
		return err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	params, err := def.BindJSON(body)
	if err != nil {
		return err
	}
	rec, err := s.start(r, def, params, options)
	if err != nil {
		return err
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	return s.sendStarted(w, r, rec, wait)
}

// sendStarted answers with an operation that was just submitted, when it has ended or the time to wait is over.
func (s *Server) sendStarted(w *answer, r *http.Request, rec *statefs.Record, wait time.Duration) error {
	w.Header().Set("Location", "/api/v1/operations/"+rec.ID.String())
	w.Header().Set(operationHeader, rec.ID.String())
	out := operationJSON{ID: rec.ID, Record: rec, Endpoint: rec.ID.Endpoint(), State: rec.Status, Status: rec.Status}
	if wait > 0 {
		out = s.afterWait(r, out, wait)
	}
	out.Durability = s.tree.Durability()
	return s.sendJSON(w, r, http.StatusCreated, out)
}

// submitOptions refuses what is no option of a submit, and says where it belongs.
func submitOptions(def *catalog.Definition, values url.Values) error {
	for name := range values {
		switch {
		case name == "wait", slices.Contains(submit.Names(), name):
		case def.Param(name) != nil:
			return refuse(http.StatusBadRequest, "A POST takes the parameters of the job as a JSON body, not in the URL: send {\"%s\": ...}", name).with("parameter", name)
		default:
			return refuse(http.StatusBadRequest, "Unknown option '%s' of a submit: the URL takes wait, %s, the JSON body the parameters of the job", printable(name, 64), strings.Join(submit.Names(), ", ")).
				with("parameter", printable(name, 64))
		}
	}
	return nil
}
