package cli

import (
	"context"

	"github.com/jobdir/jobdir/control"
	"github.com/jobdir/jobdir/daemon"
	"github.com/jobdir/jobdir/statefs"
)

// status tells control what only the daemon knows.
type status struct{ daemon *daemon.Daemon }

func (s status) Health() control.Health { return control.Health(s.daemon.Health()) }

func (s status) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	return s.daemon.Sweep(ctx, dryRun)
}
