package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// keepLists syncs what lists of submits have left to later, until ctx ends.
func (d *Daemon) keepLists(ctx context.Context) {
	select {
	case <-d.ready: // what a power cut took of them must be made again first
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
