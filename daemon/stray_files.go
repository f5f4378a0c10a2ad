package daemon

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// strayFiles notes that names without a meaning have appeared in jobs/ or left it. No reconcile
// handles them: a listing counts them, and a sweep moves those beside a live operation away.
type strayFiles struct {
	came      chan struct{} // receives a value when one appears or leaves
	uncounted atomic.Bool   // one came or went since the last count
}

// settleTime is how old stray files are when a sweep handles them.
const settleTime = statefs.SettleAge + time.Second

// note records that a stray file came or went. It never blocks and touches no file: the watch calls
// it.
func (s *strayFiles) note() {
	s.uncounted.Store(true)
	select {
	case s.came <- struct{}{}:
	default:
	}
}

// watchKey is the key by which the watch merges events of jobs/: an operation, one of its names, and whether
// the name left the folder.
type watchKey struct {
	id    statefs.ID
	names statefs.NameSet
	gone  bool
}

func (m *markers) watchKeyOf(file string) (watchKey, bool) {
	name, ok := statefs.ParseName(file)
	if !ok || (name.State == "" && name.Action == "") {
		m.strayFiles.note()
	}
	return watchKey{id: name.ID, names: name.Bit()}, ok
}

func (k watchKey) asGone() watchKey {
	k.gone = true
	return k
}

// hasPendingEvent reports whether the watch has an event for an operation that was not handled yet.
func (m *markers) hasPendingEvent(id statefs.ID) bool {
	for bit := statefs.NameSet(1); bit < statefs.AllNames; bit <<= 1 {
		if key := (watchKey{id: id, names: bit}); m.dir.Pending(key) || m.dir.Pending(key.asGone()) {
			return true
		}
	}
	key := watchKey{id: id, names: statefs.AllNames}
	return m.dir.Pending(key) || m.dir.Pending(key.asGone())
}

// countIgnored returns the number of names in jobs/ that the daemon ignores. It is that of the last
// listing, unless stray files came or went since.
func (sw *sweeper) countIgnored() uint64 {
	if sw.markers.strayFiles.uncounted.Swap(false) {
		if _, err := sw.owner.List(); err != nil {
			sw.markers.strayFiles.uncounted.Store(true) // the next caller of List meets the same error and reports it
		}
	}
	return sw.owner.Ignored()
}

// setAside moves irregular files with the name of a marker or request of an operation to corrupt/:
// a folder there would keep the marker from entering that state. A file that cannot be moved is
// reported once.
func (m *markers) setAside(op *operation, odd []string) {
	for _, file := range odd {
		err := m.owner.Quarantine(file, "no regular file, where a marker or a request of a live operation has its place")
		if err == nil {
			m.counters.swept.Add(1)
			m.logger.Warn("moved to corrupt/: not a regular file", "id", op.id(), "file", file)
			m.logLine(op, "  '"+file+"' is no regular file: moved to corrupt/.")
			continue
		}
		if !m.isFirstReport(op.id(), file) {
			continue
		}
		m.logger.Error("not a regular file, and cannot be moved to corrupt/: remove it", "id", op.id(),
			"file", file, "error", err)
		m.logLine(op, "  '"+file+"' is no regular file and cannot be moved to corrupt/: remove it.")
	}
}

// isFirstReport reports whether a file that cannot be moved was not reported before, and notes that
// it is now.
func (m *markers) isFirstReport(id statefs.ID, file string) bool {
	known, _ := m.blockedFiles.get(id)
	if slices.Contains(known, file) {
		return false
	}
	m.blockedFiles.set(id, append(known, file))
	return true
}

// logFindings logs what a sweep found. A finding that it only reports is logged once, until the
// file is gone or the daemon restarts.
func (sw *sweeper) logFindings(findings []statefs.Finding) {
	reported := make(map[string]string)
	for _, f := range findings {
		if f.Action == statefs.SweepReportOnly {
			reported[f.File] = f.Reason
			if sw.reportedFiles[f.File] != f.Reason {
				sw.logger.Warn("ignored by the sweep", "file", f.File, "reason", f.Reason)
			}
			continue
		}
		sw.counters.swept.Add(1)
		if f.Action == statefs.SweepMoveToCorrupt {
			sw.logger.Warn("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
			continue
		}
		sw.logger.Info("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
	}
	sw.reportedFiles = reported
}
