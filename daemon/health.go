package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// counters count since the daemon started.
type counters struct {
	transitions, requests, finished atomic.Uint64
	rescans, sweeps, swept, putBack atomic.Uint64
	failedLooks                     atomic.Uint64
}

// Health is how a daemon is.
type Health struct {
	// Ready says that the storage is in order and requests are carried out.
	Ready bool
	// Draining says that no work is begun any more.
	Draining bool
	// Watch says how changes in jobs/ are noticed, and why if not by inotify.
	Watch watch.Mode
	// Live counts the operations in hand by state.
	Live map[statefs.State]int
	// Counters count since the daemon started, by name.
	Counters map[string]uint64
	// Troubles are operations that could not be dealt with and are tried again, the oldest ones, and keepers that do not answer, without
	// an ID.
	Troubles []Trouble
}

// Health returns how the daemon is. It may be called at any time. It looks whether the folder is still the one that is watched, since
// some ways of losing it make no event, and ends the daemon when it is not.
func (d *Daemon) Health() Health {
	h := Health{Draining: d.draining(), Watch: d.dir.Mode(), Live: d.tally.States(), Troubles: d.troubles.list()}
	if d.config.Keepers != nil {
		for _, s := range d.config.Keepers.Silent() {
			h.Troubles = append(h.Troubles, Trouble{Error: fmt.Sprintf("keeper %d (PID %d) does not answer: continue it (kill -CONT %d) or kill it", s.Keeper, s.PID, s.PID), Since: s.Since, Tries: 1})
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
		"transitions": d.counters.transitions.Load(), "requests": d.counters.requests.Load(), "finished": d.counters.finished.Load(),
		"rescans": d.counters.rescans.Load(), "sweeps": d.counters.sweeps.Load(), "swept": d.counters.swept.Load(),
		"put_back": d.counters.putBack.Load(), "failed_looks": d.counters.failedLooks.Load(),
		"events": stats.Events, "unknown_names": stats.Unknown, "overflows": stats.Overflows, "ignored_files": d.ignored(),
	}
	return h
}

// DiskFailed ends the daemon because of an error of the disk that somebody else met, such as a sync that failed in a submit: after that
// nobody knows what is on the disk.
func (d *Daemon) DiskFailed(err error) { d.fail(err) }

// ErrStopped says that the daemon no longer runs.
var ErrStopped = errors.New("the daemon has stopped")

// Sweep sweeps now, or with dryRun only says what would be done.
func (d *Daemon) Sweep(ctx context.Context, dryRun bool) ([]statefs.Finding, error) {
	order := sweepOrder{dryRun, make(chan sweepAnswer, 1)}
	select {
	case d.sweeps <- order:
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
