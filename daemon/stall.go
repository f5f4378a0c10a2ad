package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// errStalled means that the work gave no heartbeat and its job ends stalled work.
var errStalled = errors.New("no output and no progress")

// stall notices that the work of a run gives no heartbeat (no output and no progress) for the
// stall_after of its job. Paused time does not count. It keeps one timer, and does nothing without
// a stall_after.
type stall struct {
	limit    time.Duration
	onChange func() // called without the lock when stalled changes

	mu      sync.Mutex
	last    time.Time // the last heartbeat, or when the watch began
	stalled bool
	paused  bool
	timer   *time.Timer
}

// begin starts the watch. tell is called when the work stalls and when it moves again.
func (s *stall) begin(after time.Duration, now time.Time, tell func()) {
	if after <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.onChange, s.last = after, tell, now
	s.timer = time.AfterFunc(after, s.check)
}

// alive records a heartbeat.
func (s *stall) alive(now time.Time) {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	s.last = now
	was := s.stalled
	s.stalled = false
	if was && s.timer != nil {
		s.timer.Reset(s.limit)
	}
	s.mu.Unlock()
	if was {
		s.onChange()
	}
}

// setPaused records that the work is paused or resumed. After a resume it has all its time again.
func (s *stall) setPaused(paused bool, now time.Time) {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == paused {
		return
	}
	s.paused, s.last = paused, now
	if !paused && s.timer != nil {
		s.timer.Reset(s.limit)
	}
}

// check runs when the timer fires. Heartbeats do not reset the timer, so it may be too early.
func (s *stall) check() {
	s.mu.Lock()
	if s.paused || s.stalled || s.timer == nil {
		s.mu.Unlock()
		return
	}
	if rest := s.limit - time.Since(s.last); rest > 0 {
		s.timer.Reset(rest)
		s.mu.Unlock()
		return
	}
	s.stalled = true
	s.mu.Unlock()
	s.onChange()
}

// isStalled reports whether the work has stalled.
func (s *stall) isStalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled && !s.paused
}

// end stops the watch.
func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// recordStall records that the work has stalled or moves again, and ends stalled work if its job
// wants that.
func (d *Daemon) recordStall(op *operation) error {
	if op.run == nil || op.run.stall.isStalled() == (op.rec.StalledAt != nil) {
		return nil
	}
	if op.rec.StalledAt != nil {
		op.rec.StalledAt = nil
		d.logger.Info("work moves again", "id", op.id())
	} else {
		now := d.owner.Now()
		op.rec.StalledAt = &now
		d.logger.Warn("work stalled: no output and no progress", "id", op.id(), "for", op.run.stallAfter,
			"action", op.run.def.OnStall)
	}
	op.copyProgress()
	if err := d.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	d.publishStall(op.rec)
	// This is no transition, so touch the marker: programs that watch the operation then read it again.
	if err := d.commit(op.id(), change{to: op.state}, touchMarker); err != nil {
		d.logger.Warn("nobody is told at once that work stalls or moves again", "id", op.id(), "error", err)
	}
	if op.rec.StalledAt != nil && op.run.def.OnStall != "" {
		op.run.end(&workError{code: "stalled", err: fmt.Errorf("%w for %s", errStalled, op.run.stallAfter)})
	}
	return nil
}

// cancelsStalled reports whether err is a stall for which the job wants the operation cancelled.
func (r *run) cancelsStalled(err error) bool {
	return errors.Is(err, errStalled) && r.def.OnStall == catalog.StallCancel
}
