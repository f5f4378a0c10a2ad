package control

import (
	"net/http"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// scheduleStatus is what the daemon knows of schedules.
type scheduleStatus interface {
	// Schedules returns the schedules of all jobs, sorted by address.
	Schedules() ([]api.Schedule, error)
}

// scheduleList shows and switches the schedules.
type scheduleList struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	daemon  scheduleStatus
}

// schedules is GET /api/v1/schedules.
func (s *scheduleList) schedules(w *front.Response, r *front.Request) error {
	if err := r.Query().Err(); err != nil {
		return err
	}
	all, err := s.daemon.Schedules()
	if err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, api.Schedules{Count: len(all), Schedules: append([]api.Schedule{}, all...)})
}

// switchSchedule is POST /api/v1/schedules/{group}/{job}/enable and disable.
func (s *scheduleList) switchSchedule(on bool) front.Handler {
	return func(w *front.Response, r *front.Request) error {
		if err := r.Query().Err(); err != nil {
			return err
		}
		def, err := submit.Find(s.catalog, r.Param("group"), r.Param("job"))
		if err != nil {
			return err
		}
		if def.Schedule == nil {
			return front.Refuse(http.StatusConflict, "Job '%s' has no schedule", def.Address()).With("job", def.Address())
		}
		if err := s.tree.Schedules.Enable(def.Endpoint(), on); err != nil {
			return err
		}
		all, err := s.daemon.Schedules()
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
