package control

import (
	"net/http"
	"net/url"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// jobJSON is a job as the API shows it.
type jobJSON struct {
	Group        string               `json:"group"`
	Name         string               `json:"name"`
	Endpoint     string               `json:"endpoint"`
	Path         string               `json:"path"`
	Summary      string               `json:"summary,omitempty"`
	Params       []catalog.Param      `json:"params"`
	Tags         []string             `json:"tags,omitempty"`
	Work         catalog.Work         `json:"work"`
	OnDisconnect catalog.OnDisconnect `json:"on_disconnect,omitempty"`
	Steps        []*catalog.Step      `json:"steps,omitempty"`
	Milestones   []catalog.Milestone  `json:"milestones,omitempty"`
	Definition   string               `json:"definition,omitempty"`
}

func newJobJSON(def *catalog.Definition) jobJSON {
	out := jobJSON{
		Group: def.Group, Name: def.Name, Endpoint: def.Endpoint(), Path: "/" + def.Address(), Summary: def.Summary,
		Params: def.Params, Tags: def.Tags, Work: def.Work(), OnDisconnect: def.OnDisconnect,
	}
	if out.Params == nil {
		out.Params = []catalog.Param{}
	}
	return out
}

// jobs is GET /api/v1/jobs.
func (s *Server) jobs(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	all := s.catalog.All()
	out := make([]jobJSON, len(all))
	for i, def := range all {
		out[i] = newJobJSON(def)
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{
		"jobs": out, "count": len(out),
		"problems": s.catalog.Problems(),
	})
}

// job is GET /api/v1/jobs/{group}/{job}.
func (s *Server) job(w *responseWriter, r *http.Request, p httprouter.Params) error {
	def, err := s.definition(p.ByName("group"), p.ByName("job"))
	if err != nil {
		return err
	}
	out := newJobJSON(def)
	out.Steps, out.Milestones, out.Definition = def.Steps, def.Milestones, string(def.Source())
	return s.sendJSON(w, r, http.StatusOK, out)
}

// healthz is GET /healthz.
func (s *Server) healthz(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz is GET /readyz.
func (s *Server) readyz(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	health := s.status.Health()
	draining := s.draining.Load() || health.Draining
	full, err := s.tree.Full()
	if err != nil {
		full = err.Error()
	}
	status := http.StatusOK
	if !health.Ready || draining || full != "" {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	lists := "" // empty when lists work; the daemon is ready without them
	if err := s.history.Ready(); err != nil {
		lists = err.Error()
	}
	lanes, out := s.status.Lanes(), s.status.Outbox()
	return s.sendJSON(w, r, status, map[string]any{
		"degraded": degraded(&out, time.Now()), "outbox": map[string]any{
			"pending":       out.Pending,
			"failed_manual": out.FailedManual, "oldest_at": out.OldestAt,
		},
		"lanes": laneProblems(&lanes),
		"ready": status == http.StatusOK, "history": lists, "draining": draining, "version": s.version,
		"storage": s.tree.Dir(), "durability": s.tree.Durability(), "full": full, "troubles": append([]FailingOperation{},
			health.FailingOperations...),
		"watch": health.Watch, "live": health.Live, "counters": health.Counters,
		"jobs": len(s.catalog.All()), "problems": s.catalog.Problems(),
	})
}

// boolean parses a boolean parameter, which may have no value.
func boolean(values url.Values, name string) (bool, error) {
	given := values[name]
	if len(given) == 0 {
		return false, nil
	}
	switch given[0] {
	case "", "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, refuse(http.StatusBadRequest, "Invalid parameter '%s': %s must be true or false", name,
		quoteValue(given[0])).with("parameter", name)
}

// sweep is POST /api/v1/sweep.
func (s *Server) sweep(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := allowParameters(values, "dry_run"); err != nil {
		return err
	}
	dry, err := boolean(values, "dry_run")
	if err != nil {
		return err
	}
	findings, err := s.status.Sweep(r.Context(), dry)
	if err != nil {
		return err
	}
	if findings == nil {
		findings = []statefs.Finding{}
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"dry_run": dry, "findings": findings, "count": len(findings)})
}
