package control

import (
	"context"
	"net/http"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// jobJSON is a job as the API shows it.
type jobJSON struct {
	Group        string               `json:"group"`
	Name         string               `json:"name"`
	Endpoint     string               `json:"endpoint"`
	Path         string               `json:"path"`
	Summary      string               `json:"summary,omitempty"`
	Params       []param.Param        `json:"params"`
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
		out.Params = []param.Param{}
	}
	return out
}

// jobs is GET /api/v1/jobs.
func (s *pages) jobs(w *front.Response, r *front.Request) error {
	all := s.catalog.All()
	out := make([]jobJSON, len(all))
	for i, def := range all {
		out[i] = newJobJSON(def)
	}
	return w.SendJSON(http.StatusOK, map[string]any{
		"jobs": out, "count": len(out),
		"problems": s.catalog.Problems(),
	})
}

// job is GET /api/v1/jobs/{group}/{job}.
func (s *pages) job(w *front.Response, r *front.Request) error {
	def, err := submit.Find(s.catalog, r.Param("group"), r.Param("job"))
	if err != nil {
		return err
	}
	out := newJobJSON(def)
	out.Steps, out.Milestones, out.Definition = def.Steps, def.Milestones, string(def.Source())
	return w.SendJSON(http.StatusOK, out)
}

// healthStatus is the condition of the daemon.
type healthStatus interface {
	Health() Health
	Lanes() statefs.LanesStatus
	Outbox() statefs.OutboxStatus
	// Sweep sweeps now; with dryRun it only returns the findings.
	Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error)
}

// health shows and mends the condition of the daemon and of its storage.
type health struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	history *history.Store
	daemon  healthStatus
	version string
}

// healthz is GET /healthz.
func (s *health) healthz(w *front.Response, r *front.Request) error {
	return w.SendJSON(http.StatusOK, map[string]any{"status": "ok"})
}

// readyz is GET /readyz.
func (s *health) readyz(w *front.Response, r *front.Request) error {
	health := s.daemon.Health()
	draining := r.Draining() || health.Draining
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
	lanes, out := s.daemon.Lanes(), s.daemon.Outbox()
	return w.SendJSON(status, map[string]any{
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

// sweep is POST /api/v1/sweep.
func (s *health) sweep(w *front.Response, r *front.Request) error {
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := front.AllowParameters(values, "dry_run"); err != nil {
		return err
	}
	dry, err := front.Boolean(values, "dry_run")
	if err != nil {
		return err
	}
	findings, err := s.daemon.Sweep(r.Context(), dry)
	if err != nil {
		return err
	}
	if findings == nil {
		findings = []statefs.Finding{}
	}
	return w.SendJSON(http.StatusOK, map[string]any{"dry_run": dry, "findings": findings, "count": len(findings)})
}
