package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/watch"
)

// counters holds counts since the daemon started.
type counters struct {
	transitions, requests, finished atomic.Uint64
	rescans, sweeps, swept, putBack atomic.Uint64
	failedReconciles                atomic.Uint64
}

// Health returns the health report. It may be called at any time. It also checks whether the
// watched folder is still the one in the storage, because some ways to lose it cause no event, and
// ends the daemon if it is not.
func (d *Daemon) Health() api.Health {
	h := api.Health{
		Draining: d.draining(), Watch: api.WatchMode(d.dir.Mode()), Live: d.States(),
		FailingOperations: d.failing.list(),
	}
	if d.config.Keepers != nil {
		for _, s := range d.config.Keepers.Silent() {
			h.FailingOperations = append(h.FailingOperations,
				api.FailingOperation{Error: fmt.Sprintf("keeper %d (PID %d) does not answer: continue it (kill -CONT %d) or kill it",
					s.Keeper, s.PID, s.PID), Since: s.Since, Tries: 1})
		}
	}
	select {
	case <-d.ready:
		h.Ready = !d.stopping.Load()
	default:
	}
	if gone, is := errors.AsType[*watch.GoneError](d.dir.Check()); is && h.Ready {
		h.Ready = false
		d.fail(gone)
	}
	stats := d.dir.Stats()
	h.Counters = map[string]uint64{
		"transitions": d.counters.transitions.Load(), "requests": d.counters.requests.Load(),
		"finished": d.counters.finished.Load(),
		"rescans":  d.counters.rescans.Load(), "sweeps": d.counters.sweeps.Load(), "swept": d.counters.swept.Load(),
		"put_back": d.counters.putBack.Load(), "failed_looks": d.counters.failedReconciles.Load(),
		"events": stats.Events, "unknown_names": stats.Unknown, "overflows": stats.Overflows,
		"ignored_files": d.countIgnored(),
	}
	return h
}

// DiskFailed ends the daemon because of a disk error that occurred outside of it, such as a failed
// sync during a submit. After such an error the contents of the disk are unknown.
func (d *Daemon) DiskFailed(err error) { d.fail(err) }

// RecordUnreadable makes the daemon check a record that a reader could not use, and rewrite it if
// the operation is live. A wrong file in the place of the record of an ended one goes to corrupt/.
func (d *Daemon) RecordUnreadable(id statefs.ID) {
	d.atReconcile(id, func(op *operation) {
		if op != nil {
			d.repairRecord(op)
			return
		}
		if _, err := d.owner.State(id); !errors.Is(err, statefs.ErrNotLive) {
			return
		}
		if err := d.owner.ClearRecord(id); err != nil {
			d.logger.Error("a wrong file in the place of a record cannot be moved: remove it", "id", id, "error", err)
		}
	})
}

// repairRecord rewrites the record of a live operation if its file is missing or corrupt. A corrupt
// file is moved to corrupt/.
func (d *Daemon) repairRecord(op *operation) {
	if op.activeState == nil || !op.rec.Status.Live() {
		return
	}
	_, err := d.owner.ReadRecord(op.id())
	corrupt, unreadable := errors.AsType[*statefs.CorruptError](err)
	if !unreadable && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	d.logger.Error("record unreadable, writing it again", "id", op.id(), "error", err)
	if unreadable {
		err = d.owner.QuarantineRecord(op.id(), corrupt.Reason)
	} else {
		err = nil
	}
	if err == nil {
		err = d.commitRecord(op.rec)
	}
	if d.failOnSyncError(err) != nil {
		d.logger.Error("record not written, retrying at the next sweep", "id", op.id(), "error", err)
	}
}

// ErrStopped means that the daemon no longer runs.
var ErrStopped = errors.New("the daemon has stopped")

// Sweep runs a sweep now. With dryRun it only returns what a sweep would do.
func (d *Daemon) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	order := sweepRequest{dryRun, make(chan sweepResult, 1)}
	select {
	case d.sweepRequests <- order:
	case <-d.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answer := <-order.answer:
		return answer.findings, answer.err
	case <-d.stopped:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
