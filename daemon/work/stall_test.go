package work

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Work stalls after stall_after without a heartbeat, not counting paused time, and each stall is
// reported once.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		var s stall
		s.begin(time.Minute, func() { told.Add(1) })
		defer s.end()
		pass := func(d time.Duration, stalled bool, times int64) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if s.isStalled() != stalled || told.Load() != times {
				t.Fatalf("stalled %t, told %d times; want %t, %d", s.isStalled(), told.Load(), stalled, times)
			}
		}
		pass(50*time.Second, false, 0)
		s.alive(time.Now())
		pass(50*time.Second, false, 0)
		pass(11*time.Second, true, 1)
		pass(time.Hour, true, 1)
		s.alive(time.Now())
		pass(59*time.Second, false, 2)
		s.setPaused(true)
		pass(time.Hour, false, 2)
		s.setPaused(false)
		pass(59*time.Second, false, 2)
		pass(2*time.Second, true, 3)
	})
}

// A job without stall_after has no timer.
func TestNoStallWithoutLimit(t *testing.T) {
	t.Parallel()
	var s stall
	s.begin(0, nil)
	s.alive(time.Now())
	s.setPaused(true)
	if s.timer != nil || s.isStalled() {
		t.Error("there is a watch nobody asked for")
	}
	s.end()
}
