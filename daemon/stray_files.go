package daemon

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
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
	notify.Wake(s.came)
}

func (m *markers) watchKeyOf(file string) (watchKey, bool) {
	name, ok := statefs.ParseName(file)
	if !ok || (name.State == "" && name.Action == "") {
		m.strayFiles.note()
	}
	return watchKey{id: name.ID, names: name.Bit()}, ok
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
		known, _ := m.blockedFiles.get(op.id())
		if slices.Contains(known, file) {
			continue
		}
		m.blockedFiles.set(op.id(), append(known, file))
		m.logger.Error("not a regular file, and cannot be moved to corrupt/: remove it", "id", op.id(),
			"file", file, "error", err)
		m.logLine(op, "  '"+file+"' is no regular file and cannot be moved to corrupt/: remove it.")
	}
}

// setAsideObstacles sets aside the files that block an operation which is about to be taken over.
// It leaves the files of foreign programs alone.
func (m *markers) setAsideObstacles(id statefs.ID, rec *statefs.Record, odd []string, verdict statefs.Verdict) {
	takesOver := []statefs.Verdict{statefs.Agree, statefs.RollForward, statefs.TwoMarkers, statefs.Unreadable}
	if len(odd) == 0 || !slices.Contains(takesOver, verdict) {
		return
	}
	if rec == nil {
		rec = statefs.UnknownRecord(id, m.owner.Now())
	}
	op := newOperation(rec)
	m.setAside(op, odd)
	m.closeLog(op)
}
