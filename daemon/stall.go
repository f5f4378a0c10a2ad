package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// errStalled means that the work gave no sign of life and its job wants it ended then.
var errStalled = errors.New("no output and no progress")

// stall notices that the work of a run gives no sign of life: no output and no progress for a time that the job says. Paused time
// does not count. It keeps one timer and does nothing for a job without stall_after.
type stall struct {
	after time.Duration
	tell  func() // called without the lock when stalled changes

	mu      sync.Mutex
	last    time.Time // the last sign of life, or when it was begun to wait for one
	stalled bool
	held    bool
	timer   *time.Timer
}

// begin starts the watch. tell is called when the work stalls and when it moves again.
func (s *stall) begin(after time.Duration, now time.Time, tell func()) {
	if after <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after, s.tell, s.last = after, tell, now
	s.timer = time.AfterFunc(after, s.check)
}

// alive notes a sign of life.
func (s *stall) alive(now time.Time) {
	if s.after <= 0 {
		return
	}
	s.mu.Lock()
	s.last = now
	was := s.stalled
	s.stalled = false
	if was && s.timer != nil {
		s.timer.Reset(s.after)
	}
	s.mu.Unlock()
	if was {
		s.tell()
	}
}

// hold says that the work is paused, or that it goes on: then it has all its time again.
func (s *stall) hold(paused bool, now time.Time) {
	if s.after <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == paused {
		return
	}
	s.held, s.last = paused, now
	if !paused && s.timer != nil {
		s.timer.Reset(s.after)
	}
}

// check runs when the timer fires: signs of life do not touch the timer, so it may be too early.
func (s *stall) check() {
	s.mu.Lock()
	if s.held || s.stalled || s.timer == nil {
		s.mu.Unlock()
		return
	}
	if rest := s.after - time.Since(s.last); rest > 0 {
		s.timer.Reset(rest)
		s.mu.Unlock()
		return
	}
	s.stalled = true
	s.mu.Unlock()
	s.tell()
}

// is reports whether the work has stalled.
func (s *stall) is() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled && !s.held
}

// end ends the watch.
func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// noteStall writes down that the work has stalled, or that it moves again, and does what its job says.
func (d *Daemon) noteStall(op *operation) error {
	if op.run == nil || op.run.stall.is() == (op.rec.StalledAt != nil) {
		return nil
	}
	if op.rec.StalledAt != nil {
		op.rec.StalledAt = nil
		d.logger.Info("work moves again", "id", op.id())
	} else {
		now := d.owner.Now()
		op.rec.StalledAt = &now
		d.logger.Warn("work stalled: no output and no progress", "id", op.id(), "for", op.run.def.StallAfter, "action", op.run.def.OnStall)
	}
	op.noteProgress()
	if err := d.owner.WriteRecord(op.rec); err != nil {
		return err
	}
	d.tellStall(op.rec)
	// Nothing of this has an event of its own; whoever follows the operation looks again when its marker is touched.
	if err := d.owner.Touch(op.id(), op.state); err != nil {
		d.logger.Warn("nobody is told at once that work stalls or moves again", "id", op.id(), "error", err)
	}
	if op.rec.StalledAt != nil && op.run.def.OnStall != "" {
		op.run.end(&workError{code: "stalled", err: fmt.Errorf("%w for %s", errStalled, op.run.def.StallAfter)})
	}
	return nil
}

// cancelsStalled says whether an error of the work is a stall for which the job wants the operation cancelled.
func (r *run) cancelsStalled(err error) bool {
	return errors.Is(err, errStalled) && r.def.OnStall == catalog.StallCancel
}
