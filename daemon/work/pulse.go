package work

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// logHeartbeatEvery is the shortest time between two heartbeats of work that writes to its log,
// which it may do millions of times a second.
const logHeartbeatEvery = 100 * time.Millisecond

// pulse holds the signs of life of a run (heartbeats and progress) and the time limits that depend
// on them and on pauses.
type pulse struct {
	report   *Report
	progress progressFile
	stall    stall
	timeout  timeout
	changed  func()    // called when the work reports another phase, stalls, or moves again
	begunAt  time.Time // when this daemon began with the run
	// lastHeartbeat is when noteLogWrite last gave a heartbeat, in monotonic nanoseconds since
	// begunAt
	lastHeartbeat atomic.Int64
}

// begin starts the time limits. timedOut is called when the work has taken too long.
func (p *pulse) begin(t *task, timedOut func()) {
	now := time.Now()
	p.begunAt = now.Add(-logHeartbeatEvery)
	p.stall.begin(t.StallAfter(), now, p.changed)
	if t.def.Work() != catalog.WorkRun {
		p.timeout.begin(t.remainingTimeout(), now, timedOut)
	}
}

// end stops the time limits and writes the last progress.
func (p *pulse) end() {
	p.stall.end()
	p.timeout.end()
	p.progress.close()
}

func (p *pulse) setPaused(paused bool) {
	now := time.Now()
	p.stall.setPaused(paused, now)
	p.timeout.setPaused(paused, now)
}

// setProgress records progress and schedules its write.
func (p *pulse) setProgress(done int64, total *int64, phase string) {
	now := time.Now()
	p.stall.alive(now)
	entered := phase != "" && phase != p.report.current().Phase
	p.progress.put(p.report.setProgress(done, total, phase, now), now)
	if entered {
		p.changed()
	}
}

// noteLogWrite records a heartbeat because the work wrote to its log.
func (p *pulse) noteLogWrite() {
	now := int64(time.Since(p.begunAt))
	last := p.lastHeartbeat.Load()
	if now-last >= int64(logHeartbeatEvery) && p.lastHeartbeat.CompareAndSwap(last, now) {
		p.alive()
	}
}

// alive records a heartbeat, which changes only the time of the progress.
func (p *pulse) alive() {
	now := time.Now()
	p.stall.alive(now)
	p.progress.put(p.report.touch(now), now)
}

// Stalled reports whether the work gives no sign of life.
func (p *pulse) Stalled() bool { return p.stall.isStalled() }

// progressWriter returns the function that writes the progress of a run.
func (t *task) progressWriter(progressed func(statefs.Progress)) func(statefs.Progress) error {
	return func(p statefs.Progress) error {
		if t.optional {
			return nil // the progress of the operation is that of its required steps
		}
		p = t.step.ofOperation(p)
		progressed(p)
		return t.host.Owner.Output.WriteProgress(t.id, p)
	}
}

// progressEvery is the shortest time between two writes of a progress file.
const progressEvery = time.Second

// progressFile writes progress at most once a second: immediately if the last write is at least a
// second ago, otherwise when that second is over. No timer runs while nothing changes. A failed
// write is not retried; the next progress overwrites it, since progress may be lost.
type progressFile struct {
	write func(statefs.Progress) error

	mu     sync.Mutex
	last   time.Time
	next   statefs.Progress
	timer  *time.Timer
	due    bool
	closed bool
}

func (f *progressFile) put(p statefs.Progress, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = p
	if f.closed || f.due {
		return
	}
	if wait := progressEvery - now.Sub(f.last); wait > 0 && !f.last.IsZero() {
		f.due = true
		if f.timer == nil {
			f.timer = time.AfterFunc(wait, f.flush)
		} else {
			f.timer.Reset(wait)
		}
		return
	}
	f.writeLocked(now)
}

func (f *progressFile) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due && !f.closed {
		f.due = false
		f.writeLocked(time.Now())
	}
}

func (f *progressFile) writeLocked(now time.Time) {
	f.last = now
	_ = f.write(f.next) // progress may be lost; the next one is written within a second
}

// close writes pending progress and stops the timer.
func (f *progressFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.due {
		f.due = false
		f.writeLocked(time.Now())
	}
	f.closed = true
}

// ErrStalled means that the work gave no heartbeat and its job ends stalled work.
var ErrStalled = errors.New("no output and no progress")

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

// errTimeout means that an attempt took longer than its job allows.
var errTimeout = errors.New("it took longer than the timeout")

// timeout ends an attempt that takes too long. Paused time does not count. A job without a timeout
// has no timer. An attempt that is one command has none either: its keeper measures the time, even
// while no daemon runs.
type timeout struct {
	onExpire func() // called without the lock

	mu     sync.Mutex
	budget time.Duration // the time left when the clock was last stopped
	since  time.Time     // when the clock was last started; zero while it is stopped
	timer  *time.Timer
}

func (o *timeout) begin(after time.Duration, now time.Time, fire func()) {
	if after <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onExpire, o.budget, o.since = fire, after, now
	o.timer = time.AfterFunc(after, fire)
}

// setPaused stops the clock while the work is paused.
func (o *timeout) setPaused(paused bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil || paused == o.since.IsZero():
	case paused:
		o.timer.Stop()
		o.budget = max(o.budget-now.Sub(o.since), 1)
		o.since = time.Time{}
	default:
		o.since = now
		o.timer.Reset(o.budget)
	}
}

// remaining returns how much time is left, at least one nanosecond, or 0 if there is no limit.
func (o *timeout) remaining(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil:
		return 0
	case o.since.IsZero():
		return max(o.budget, 1)
	}
	return max(o.budget-now.Sub(o.since), 1)
}

func (o *timeout) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}
