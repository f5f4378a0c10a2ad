package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// A stopped keeper is alive and does not answer, and its commands continue. A daemon that starts
// serves all the same: an operation that was running or paused keeps that state until the keeper
// answers or dies, and an operation that ran before and is to run again waits for that too.

// errKeeperSilent means that an operation cannot begin because a command of one of its earlier runs
// may still be running.
var errKeeperSilent = errors.New("a keeper does not answer, and may have a command of an earlier run: continue it (kill -CONT) or kill it")

// keepersSettled reports whether all keepers that existed at the start have answered or died.
func (d *Daemon) keepersSettled() bool {
	return d.config.Keepers == nil || isClosed(d.config.Keepers.Settled())
}

// waitsForKeeper reports whether a keeper that does not answer may hold commands of this work.
func (d *Daemon) waitsForKeeper(def *catalog.Definition, _ catalog.Params, err error) bool {
	return !d.keepersSettled() && err == nil && def.Work() != catalog.WorkHandler
}

// awaitKeepers waits until all keepers have answered or died. Then it ends the commands that belong
// to no operation, and allows the operations that existed at the start to begin. It also returns
// when ctx ends.
func (d *Daemon) awaitKeepers(ctx context.Context) {
	if d.awaitingKeepers.Load() == nil {
		return
	}
	select {
	case <-d.config.Keepers.Settled():
	case <-ctx.Done():
		return
	}
	if err := d.endUnwantedCommands(d.workHost.HeldCommands()); err != nil {
		d.fail(err)
		return
	}
	d.awaitingKeepers.Store(nil)
}

// checkSilentKeepers returns an error if a keeper that does not answer may hold a command of an
// operation that is about to begin again.
func (d *Daemon) checkSilentKeepers(rec *statefs.Record) error {
	if present := d.awaitingKeepers.Load(); present != nil && rec.Starts > 0 && (*present)[rec.ID] {
		return fmt.Errorf("begin %s: %w", rec.ID, errKeeperSilent)
	}
	return nil
}
