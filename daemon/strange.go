package daemon

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// strangers remembers that jobs/ has got, or lost, names that mean nothing. No look asks for them: a listing counts them, and a
// sweep sets aside those that stand beside a live operation.
type strangers struct {
	wait  time.Duration // how long they are left to rest; a sweep earlier would touch none of them
	sweep chan struct{} // has a value when it is time to sweep

	uncounted atomic.Bool // one came or went since the last count

	mu    sync.Mutex // guards the rest
	timer *time.Timer
	more  bool // another one came while the timer ran
}

func newStrangers(wait time.Duration) *strangers {
	return &strangers{wait: wait, sweep: make(chan struct{}, 1)}
}

// notice notes that one came or went. It never blocks and touches no file: the watch calls it.
func (s *strangers) notice() {
	s.uncounted.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.more = true
		return
	}
	s.timer = time.AfterFunc(s.wait, s.rested)
}

func (s *strangers) rested() {
	select {
	case s.sweep <- struct{}{}:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.more {
		s.more = false
		s.timer = time.AfterFunc(s.wait, s.rested)
	}
}

// stop forgets what was to come.
func (s *strangers) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = false
	if s.timer != nil {
		s.timer.Stop()
	}
}

// touched is the key by which events of jobs/ are gathered: an operation, and one of its names.
type touched struct {
	id    statefs.ID
	names statefs.Names
}

func (d *Daemon) touchedBy(file string) (touched, bool) {
	name, ok := statefs.ParseName(file)
	if !ok || (name.State == "" && name.Ask == "") {
		d.strangers.notice()
	}
	return touched{name.ID, name.Bit()}, ok
}

// isPending reports whether the watch has something to say of an operation that was not taken yet.
func (d *Daemon) isPending(id statefs.ID) bool {
	for bit := statefs.Names(1); bit < statefs.AllNames; bit <<= 1 {
		if d.dir.Pending(touched{id, bit}) {
			return true
		}
	}
	return d.dir.Pending(touched{id, statefs.AllNames})
}

// ignored counts the names in jobs/ that are nothing of ours. The last listing knows, unless some came or went since.
func (d *Daemon) ignored() uint64 {
	if d.strangers.uncounted.Swap(false) {
		if _, err := d.owner.List(); err != nil {
			d.strangers.uncounted.Store(true) // whoever needs the listing meets the same error and reports it
		}
	}
	return d.owner.Ignored()
}

// setAside moves what is no regular file from the names of an operation's markers and requests to corrupt/: a folder there would
// keep the marker from getting that state. What cannot be moved is reported once.
func (d *Daemon) setAside(op *operation, odd []string) {
	for _, file := range odd {
		err := d.owner.Quarantine(file, "no regular file, where a marker or a request of a live operation has its place")
		if err == nil {
			d.counters.swept.Add(1)
			d.logger.Warn("moved to corrupt/: it is no regular file", "id", op.id(), "file", file)
			d.say(op, "  '"+file+"' is no regular file: moved to corrupt/.")
			continue
		}
		if !d.firstTime(op.id(), file) {
			continue
		}
		d.logger.Error("no regular file, and it cannot be moved to corrupt/: remove it", "id", op.id(), "file", file, "error", err)
		d.say(op, "  '"+file+"' is no regular file and in the way: remove it.")
	}
}

// firstTime reports whether a file that is stuck was not reported before, and notes that it is now.
func (d *Daemon) firstTime(id statefs.ID, file string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.stuck[id], file) {
		return false
	}
	d.stuck[id] = append(d.stuck[id], file)
	return true
}

// report logs what a sweep found, and each thing that it only reports once: until it is gone, or the daemon is started anew.
func (d *Daemon) report(findings []statefs.Finding) {
	reported := make(map[string]string)
	for _, f := range findings {
		if f.Action == statefs.ReportOnly {
			reported[f.File] = f.Reason
			if d.reported[f.File] != f.Reason {
				d.logger.Warn("ignored by the sweep", "file", f.File, "reason", f.Reason)
			}
			continue
		}
		d.counters.swept.Add(1)
		if f.Action == statefs.MoveToCorrupt {
			d.logger.Warn("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
			continue
		}
		d.logger.Info("swept", "action", f.Action, "file", f.File, "reason", f.Reason)
	}
	d.reported = reported
}
