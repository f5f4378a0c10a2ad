package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// runBatchSync syncs the records that batch submits have not synced yet, until ctx ends.
func (d *Daemon) runBatchSync(ctx context.Context) {
	select {
	case <-d.ready: // recovery must first restore what a power cut destroyed of them
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(d.config.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			err := d.owner.SettleBatches(now.Add(-d.config.SweepInterval))
			if _, failed := errors.AsType[*statefs.SyncError](err); failed {
				d.fail(err)
			} else if err != nil {
				d.logger.Warn("records of lists are not settled; it is tried again", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
