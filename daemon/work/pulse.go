package work

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
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
	timeout  keeper.TimeLimit
	changed  func()    // called when the work reports another phase, stalls, or moves again
	begunAt  time.Time // when this daemon began with the run
	// lastHeartbeat is when noteLogWrite last gave a heartbeat, in monotonic nanoseconds since
	// begunAt
	lastHeartbeat atomic.Int64
}

// begin starts the time limits. timedOut is called when the work has taken too long.
func (p *pulse) begin(t *task, timedOut func()) {
	p.begunAt = time.Now().Add(-logHeartbeatEvery)
	p.stall.begin(t.StallAfter(), p.changed)
	if t.def.Work() != catalog.WorkRun {
		p.timeout.Begin(t.remainingTimeout(), timedOut) // the keeper measures the time of a single command
	}
}

// end stops the time limits and writes the last progress.
func (p *pulse) end() {
	p.stall.end()
	p.timeout.End()
	p.progress.close()
}

func (p *pulse) setPaused(paused bool) {
	p.stall.setPaused(paused)
	p.timeout.SetPaused(paused)
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

// noteLogWrite records a heartbeat because a handler wrote to its log.
func (p *pulse) noteLogWrite() {
	since := int64(time.Since(p.begunAt))
	last := p.lastHeartbeat.Load()
	if since-last >= int64(logHeartbeatEvery) && p.lastHeartbeat.CompareAndSwap(last, since) {
		now := time.Now()
		p.stall.alive(now)
		p.progress.beat(p.report.touch(now), now)
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

// The shortest time between two writes of a progress file: for new progress, and for heartbeats of
// a handler. A heartbeat has a longer one, because a handler may write a line to its log every
// second, which costs less than replacing a file.
const (
	progressEvery  = time.Second
	heartbeatEvery = 10 * time.Second
)

// progressFile writes progress at most once a second: immediately if the last write is at least a
// second ago, otherwise when that second is over. No timer runs while nothing changes. A failed
// write is not retried; the next progress overwrites it, since progress may be lost.
type progressFile struct {
	write func(statefs.Progress) error

	mu     sync.Mutex
	last   time.Time
	next   statefs.Progress
	timer  *time.Timer // set while next is to be written
	due    time.Time   // when timer fires
	closed bool
}

func (f *progressFile) put(p statefs.Progress, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = p
	if due := f.last.Add(progressEvery); due.After(now) {
		f.scheduleLocked(due, now)
	} else if !f.closed {
		f.writeLocked(now)
	}
}

// beat schedules the write of a heartbeat. The goroutine of a timer writes it, so the handler neither
// waits for the file nor keeps the stack that the write needs.
func (f *progressFile) beat(p statefs.Progress, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = p
	f.scheduleLocked(f.last.Add(heartbeatEvery), now)
}

// scheduleLocked has next written when due, unless it will be written earlier.
func (f *progressFile) scheduleLocked(due, now time.Time) {
	switch {
	case f.closed || f.timer != nil && !due.Before(f.due):
		return
	case f.timer == nil:
		f.timer = time.AfterFunc(due.Sub(now), f.flush)
	default:
		f.timer.Reset(due.Sub(now))
	}
	f.due = due
}

// flush writes pending progress.
func (f *progressFile) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.writeLocked(time.Now())
	}
}

func (f *progressFile) writeLocked(now time.Time) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.last = now
	_ = f.write(f.next) // progress may be lost; the next one is written within a second
}

// close writes pending progress, and nothing after that.
func (f *progressFile) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.flush()
}

// ErrStalled means that the work gave no heartbeat and its job ends stalled work.
var ErrStalled = errors.New("no output and no progress")

// stall notices that the work of a run gives no heartbeat (no output and no progress) for the
// stall_after of its job. Paused time does not count, and after a pause the work has all its time
// again. Without a stall_after there is no timer.
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
func (s *stall) begin(after time.Duration, tell func()) {
	if after <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.onChange, s.last = after, tell, time.Now()
	s.timer = time.AfterFunc(after, s.check)
}

// alive records a heartbeat.
func (s *stall) alive(now time.Time) {
	s.mu.Lock()
	was := s.stalled
	s.stalled = false
	s.restartLocked(now)
	s.mu.Unlock()
	if was {
		s.onChange()
	}
}

// setPaused records that the work is paused or resumed.
func (s *stall) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	s.restartLocked(time.Now())
}

func (s *stall) restartLocked(now time.Time) {
	s.last = now
	if s.timer != nil {
		s.timer.Reset(s.limit)
	}
}

// check runs when the timer fires. A heartbeat may have come just before.
func (s *stall) check() {
	s.mu.Lock()
	ignore := s.paused || s.stalled || s.timer == nil || time.Since(s.last) < s.limit
	s.stalled = s.stalled || !ignore
	s.mu.Unlock()
	if !ignore {
		s.onChange()
	}
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
