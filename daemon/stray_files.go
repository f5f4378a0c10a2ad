package daemon

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// strayFiles notes that names without a meaning have appeared in jobs/ or left it. No reconcile
// handles them: a listing counts them, and a sweep moves those beside a live operation away.
type strayFiles struct {
	settleTime time.Duration // how old they must be before a sweep touches them
	sweep      chan struct{} // receives a value when a sweep is due

	uncounted atomic.Bool // a stray file came or went since the last count

	mu    sync.Mutex // guards the rest
	timer *time.Timer
	again bool // another one came while the timer ran
}

func newStrayFiles(wait time.Duration) *strayFiles {
	return &strayFiles{settleTime: wait, sweep: make(chan struct{}, 1)}
}

// note records that a stray file came or went. It never blocks and touches no file: the watch calls
// it.
func (s *strayFiles) note() {
	s.uncounted.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.again = true
		return
	}
	s.timer = time.AfterFunc(s.settleTime, s.requestSweep)
}

func (s *strayFiles) requestSweep() {
	select {
	case s.sweep <- struct{}{}:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.again {
		s.again = false
		s.timer = time.AfterFunc(s.settleTime, s.requestSweep)
	}
}

// stop cancels a sweep that is not due yet.
func (s *strayFiles) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = false
	if s.timer != nil {
		s.timer.Stop()
	}
}

// watchKey is the key by which the watch merges events of jobs/: an operation, and one of its
// names.
type watchKey struct {
	id    statefs.ID
	names statefs.NameSet
}

func (d *Daemon) watchKeyOf(file string) (watchKey, bool) {
	name, ok := statefs.ParseName(file)
	if !ok || (name.State == "" && name.Action == "") {
		d.strayFiles.note()
	}
	return watchKey{name.ID, name.Bit()}, ok
}

// hasPendingEvent reports whether the watch has an event for an operation that was not handled yet.
func (d *Daemon) hasPendingEvent(id statefs.ID) bool {
	for bit := statefs.NameSet(1); bit < statefs.AllNames; bit <<= 1 {
		if d.dir.Pending(watchKey{id, bit}) {
			return true
		}
	}
	return d.dir.Pending(watchKey{id, statefs.AllNames})
}

// countIgnored returns the number of names in jobs/ that the daemon ignores. It is that of the last
// listing, unless stray files came or went since.
func (d *Daemon) countIgnored() uint64 {
	if d.strayFiles.uncounted.Swap(false) {
		if _, err := d.owner.List(); err != nil {
			d.strayFiles.uncounted.Store(true) // the next caller of List meets the same error and reports it
		}
	}
	return d.owner.Ignored()
}

// setAside moves irregular files with the name of a marker or request of an operation to corrupt/:
// a folder there would keep the marker from entering that state. A file that cannot be moved is
// reported once.
func (d *Daemon) setAside(op *operation, odd []string) {
	for _, file := range odd {
		err := d.owner.Quarantine(file, "no regular file, where a marker or a request of a live operation has its place")
		if err == nil {
			d.counters.swept.Add(1)
			d.logger.Warn("moved to corrupt/: not a regular file", "id", op.id(), "file", file)
			d.logLine(op, "  '"+file+"' is no regular file: moved to corrupt/.")
			continue
		}
		if !d.isFirstReport(op.id(), file) {
			continue
		}
		d.logger.Error("not a regular file, and cannot be moved to corrupt/: remove it", "id", op.id(),
			"file", file, "error", err)
		d.logLine(op, "  '"+file+"' is no regular file and in the way: remove it.")
	}
}

// isFirstReport reports whether a file that cannot be moved was not reported before, and notes that
// it is now.
func (d *Daemon) isFirstReport(id statefs.ID, file string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.blockedFiles[id], file) {
		return false
	}
	d.blockedFiles[id] = append(d.blockedFiles[id], file)
	return true
}

// logFindings logs what a sweep found. A finding that it only reports is logged once, until the
// file is gone or the daemon restarts.
func (d *Daemon) logFindings(findings []statefs.Finding) {
	reported := make(map[string]string)
	for _, f := range findings {
		if f.Action == statefs.SweepReportOnly {
			reported[f.File] = f.Reason
			if d.reportedFiles[f.File] != f.Reason {
				d.logger.Warn("ignored by the sweep", "file", f.File, "reason", f.Reason)
			}
			continue
		}
		d.counters.swept.Add(1)
		if f.Action == statefs.SweepMoveToCorrupt {
			d.logger.Warn("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
			continue
		}
		d.logger.Info("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
	}
	d.reportedFiles = reported
}
