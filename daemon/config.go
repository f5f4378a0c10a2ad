package daemon

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Config configures a daemon. Owner, Catalog, History and Intake are required; every other field has a default.
type Config struct {
	// Owner is the storage directory with its lock held. The daemon does not release the lock.
	Owner *statefs.Owner
	// Catalog supplies the job definitions for schedules, follow-ups and inbox submits. A submitted
	// operation uses the definition stored with it, and the catalog only if its record names none.
	Catalog *catalog.Catalog
	// Handlers are the Go functions that job definitions may name.
	Handlers work.Handlers
	// Logger receives log messages; nil discards them.
	Logger *slog.Logger
	// Keepers run the commands, which then outlive the daemon. The daemon does not close them. If
	// Keepers is nil, commands are children of this process and are interrupted when it ends.
	Keepers *keeper.Pool
	// Grace is the time between SIGTERM and SIGKILL for jobs that do not set one. Default 10 s.
	Grace time.Duration
	// CrashLimit is how often work may die, for jobs that do not set a limit. Zero fields take
	// their value from catalog.DefaultCrashLimit.
	CrashLimit catalog.CrashLimit
	// StallAfter is the time without a sign of life after which work is shown as stalled, for jobs
	// that do not set one. Default 0: never.
	StallAfter time.Duration
	// SweepInterval is the time between two sweeps. Default 60 s.
	SweepInterval time.Duration
	// Lanes configures the lanes by name. statefs.DefaultLane always exists.
	Lanes map[string]lanes.LaneConfig
	// Limits are the capacities of the limits by name.
	Limits map[string]int
	// Ageing is the waiting time that counts as much as one point of priority; 0: only priority
	// counts.
	Ageing time.Duration
	// MaxQueued is how many operations may wait to start before Admit refuses more; 0: no bound.
	MaxQueued int
	// Environ returns the environment that commands inherit. It is called at each start. Default
	// os.Environ.
	Environ func() []string
	// Watch adjusts how jobs/ is watched; the zero value suits production.
	Watch watch.Options
	// History is the index of ended operations. The daemon runs it and does not close it.
	History *history.Store
	// Intake takes the submits. It is notified of every live operation, of every end, and when all live
	// operations are known.
	Intake *submit.Intake
	// Retention is how long ended operations are kept; the zero value keeps them forever.
	Retention history.Retention
	// Events is the log to which the daemon publishes events. The daemon does not close it; may be
	// nil.
	Events *events.Log
	// Outbox are the settings of deliveries; the zero value suits production.
	Outbox delivery.Settings
}

func (c *Config) setDefaults() error {
	if c.Owner == nil || c.Catalog == nil || c.History == nil || c.Intake == nil {
		return errors.New("daemon: Owner, Catalog, History and Intake are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Grace == 0 {
		c.Grace = keeper.DefaultGrace
	}
	c.CrashLimit = c.CrashLimit.Or(catalog.DefaultCrashLimit)
	if c.SweepInterval == 0 {
		c.SweepInterval = time.Minute
	}
	if c.Grace < 0 || c.SweepInterval < 0 || c.StallAfter < 0 {
		return errors.New("daemon: Grace, SweepInterval and StallAfter must not be negative")
	}
	if c.Environ == nil {
		c.Environ = os.Environ
	}
	return nil
}

// ErrDetach is the cause with which the context of Daemon.Run ends if commands are to continue
// without the daemon.
var ErrDetach = errors.New("the daemon stops and leaves its commands running")
