package control

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// overdue is how long a delivery must be pending at an unreachable target before the daemon reports itself as degraded.
const overdue = time.Hour

// degraded describes in sentences what needs attention: targets that have been unreachable for longer than overdue, and
// deliveries that wait for a person.
func degraded(out *statefs.OutboxStatus, now time.Time) []string {
	said := []string{}
	for i := range out.Targets {
		t := &out.Targets[i]
		if !t.Down || t.OldestAt == nil || now.Sub(*t.OldestAt) < overdue {
			continue
		}
		said = append(said, fmt.Sprintf("%s is down: %s for it, the oldest for %s; the last error: %s",
			front.Printable(t.Name, 300), waiting(t.Pending), strings.TrimSuffix(now.Sub(*t.OldestAt).Truncate(time.Minute).String(),
				"0s"), front.Printable(t.Error, 500)))
	}
	if n := out.FailedManual; n > 0 {
		said = append(said, waiting(n)+" for a person: 'jobdir outbox --status failed_manual' has the reason")
	}
	return said
}

func waiting(n int) string {
	if n == 1 {
		return "1 delivery waits"
	}
	return fmt.Sprintf("%d deliveries wait", n)
}

// conditionStatus is the condition of the daemon.
type conditionStatus interface {
	// Health returns what the daemon knows of its condition.
	Health() api.Health
	// DiskFailed stops the daemon after a request met a disk error.
	DiskFailed(err error)
	// Sweep sweeps now; with dryRun it only returns the findings.
	Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error)
}

// health shows and mends the condition of the daemon and of its storage.
type health struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	history *history.Store
	daemon  conditionStatus
	lanes   laneStatus
	outbox  outboxStatus
	version string
}

// healthz is GET /healthz.
func (s *health) healthz(w *front.Response, r *front.Request) error {
	return w.SendJSON(http.StatusOK, map[string]any{"status": "ok"})
}

// readyz is GET /readyz.
func (s *health) readyz(w *front.Response, r *front.Request) error {
	out := s.daemon.Health()
	out.Draining = r.Draining() || out.Draining
	full, err := s.tree.Full()
	if err != nil {
		full = err.Error()
	}
	status := http.StatusOK
	if !out.Ready || out.Draining || full != "" {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	if err := s.history.Ready(); err != nil {
		out.History = err.Error()
	}
	lanes, outbox := s.lanes.Status(), s.outbox.Status()
	out.Degraded, out.Lanes = degraded(&outbox, time.Now()), laneProblems(&lanes)
	out.Outbox = api.OutboxCounts{FailedManual: outbox.FailedManual, OldestAt: outbox.OldestAt, Pending: outbox.Pending}
	out.Ready, out.Full, out.Version = status == http.StatusOK, full, s.version
	out.Storage, out.Durability = s.tree.Dir(), s.tree.Durability()
	out.Jobs, out.Problems = len(s.catalog.All()), s.catalog.Problems()
	out.FailingOperations = append([]api.FailingOperation{}, out.FailingOperations...)
	return w.SendJSON(status, out)
}

// sweep is POST /api/v1/sweep.
func (s *health) sweep(w *front.Response, r *front.Request) error {
	dry, err := dryRunOf(r)
	if err != nil {
		return err
	}
	findings, err := s.daemon.Sweep(r.Context(), dry)
	if err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, api.Swept{
		Count: len(findings), DryRun: dry, Findings: append([]statefs.Finding{}, findings...),
	})
}
