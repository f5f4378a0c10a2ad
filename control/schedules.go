package control

import (
	"net/http"

	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/control/front"
)

// schedules is GET /api/v1/schedules.
func (s *Server) schedules(w *front.Response, r *front.Request) error {
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := front.AllowParameters(values); err != nil {
		return err
	}
	all, err := s.status.Schedules()
	if err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, map[string]any{"schedules": append([]schedule.Status{},
		all...), "count": len(all)})
}

// switchSchedule is POST /api/v1/schedules/{group}/{job}/enable and disable.
func (s *Server) switchSchedule(on bool) front.Handler {
	return func(w *front.Response, r *front.Request) error {
		values, err := r.Values()
		if err != nil {
			return err
		}
		if err := front.AllowParameters(values); err != nil {
			return err
		}
		def, err := s.definition(r.Param("group"), r.Param("job"))
		if err != nil {
			return err
		}
		if def.Schedule == nil {
			return front.Refuse(http.StatusConflict, "Job '%s' has no schedule", def.Address()).With("job", def.Address())
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
				return w.SendJSON(http.StatusOK, one)
			}
		}
		return front.Refuse(http.StatusConflict, "Job '%s' has no schedule any more", def.Address()).With("job", def.Address())
	}
}
