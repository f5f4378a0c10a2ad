package control

import (
	"net/http"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog/schedule"
)

// schedules is GET /api/v1/schedules.
func (s *Server) schedules(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := allowParameters(values); err != nil {
		return err
	}
	all, err := s.status.Schedules()
	if err != nil {
		return err
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"schedules": append([]schedule.Status{},
		all...), "count": len(all)})
}

// switchSchedule is POST /api/v1/schedules/{group}/{job}/enable and disable.
func (s *Server) switchSchedule(on bool) handler {
	return func(w *responseWriter, r *http.Request, p httprouter.Params) error {
		values, err := query(r)
		if err != nil {
			return err
		}
		if err := allowParameters(values); err != nil {
			return err
		}
		def, err := s.definition(p.ByName("group"), p.ByName("job"))
		if err != nil {
			return err
		}
		if def.Schedule == nil {
			return refuse(http.StatusConflict, "Job '%s' has no schedule", def.Address()).with("job", def.Address())
		}
		if err := s.tree.EnableSchedule(def.Endpoint(), on); err != nil {
			return err
		}
		all, err := s.status.Schedules()
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.Job == def.Address() {
				return s.sendJSON(w, r, http.StatusOK, one)
			}
		}
		return refuse(http.StatusConflict, "Job '%s' has no schedule any more", def.Address()).with("job", def.Address())
	}
}
