// Package trigger submits without a request by HTTP: jobs by their schedules, files that are moved into new/, and
// the job that follows a completed one.
//
//	a slot is due ────alarm────▶ schedules/ENDPOINT.json: firing ──▶ submit ──▶ handled
//	new/NAME.json ────event────▶ taken/NAME.json ──▶ submit ──▶ NAME.accepted or NAME.rejected
//	an operation completes ────▶ submit ──▶ its record names the follower
//
// Each submit has an idempotency key made of its cause: of job and slot, of the file, of the operation that has
// completed. So a cause has its effect once, however often the daemon dies in between: the next one tries again and
// gets the same operation. What may be submitted is for daemon/submit and the lanes to decide.
//
// What cannot be submitted now, because a lane is closed, the queue or the disk is full, is tried again. A failed sync
// ends the daemon.
package trigger

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Config is what a Trigger works with.
type Config struct {
	Owner    *statefs.Owner
	Catalog  *catalog.Catalog
	Intake   *submit.Intake
	Logger   *slog.Logger
	Watch    watch.Options
	Interval time.Duration        // the time between two listings of new/
	Ready    <-chan struct{}      // closed once submits are taken
	Reopened <-chan struct{}      // gets a value when a lane accepts submits again
	Stopping func() bool          // whether what is due is left to the next daemon
	Fail     func(error)          // ends the daemon
	Uptime   func() time.Duration // how long the daemon has run
}

// Trigger submits by schedules and by files, and what follows.
type Trigger struct {
	config    Config
	scheduler *scheduler
}

// New returns a Trigger; Run starts it.
func New(c Config) *Trigger {
	t := &Trigger{config: c}
	t.scheduler = newScheduler(&t.config)
	return t
}

// Run submits until ctx ends, once the daemon is ready.
func (t *Trigger) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { t.scheduler.alarms.Run(ctx, t.config.Logger) })
	select {
	case <-t.config.Ready:
	case <-ctx.Done():
		return
	}
	parts.Go(func() { t.scheduler.run(ctx) })
	parts.Go(func() { newInbox(&t.config).run(ctx) })
}

// CheckClock compares all schedules with the clock, which may have been set.
func (t *Trigger) CheckClock() {
	t.scheduler.reconcileSoon()
	t.scheduler.alarms.Rearm()
}
