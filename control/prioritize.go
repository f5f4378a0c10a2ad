package control

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// prioritize is POST /api/v1/operations/{id}/prioritize.
func (s *Server) prioritize(w *responseWriter, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "priority", "wait", "strict")
	if err != nil {
		return err
	}
	wait, err := waitFrom(values.Get("wait"))
	if err != nil {
		return err
	}
	f := s.hub.follow(id, viewEnd)
	defer f.close()
	q, err := s.newActionRequest(id, statefs.Prioritize, wait)
	if err != nil {
		return err
	}
	var args json.RawMessage
	if text := values.Get("priority"); values.Has("priority") {
		n, err := strconv.Atoi(text)
		if err != nil || n < -catalog.MaxPriority || n > catalog.MaxPriority {
			return refuse(http.StatusBadRequest, "Invalid parameter 'priority': '%s' is not a whole number from %d to %d",
				printable(text, 32), -catalog.MaxPriority, catalog.MaxPriority).
				with("parameter", "priority")
		}
		q.priority = &n
		args = json.RawMessage(`{"priority":` + strconv.Itoa(n) + `}`)
	}
	_, strict, err := actionOptions(statefs.Prioritize, values)
	if err != nil {
		return err
	}
	out, err := s.writeRequest(r.Context(), id, statefs.Prioritize, args, strict)
	if err != nil {
		return err
	}
	return s.sendActionReply(w, r, f, q, out, wait)
}
