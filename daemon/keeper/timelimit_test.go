package keeper

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of a time limit is stopped while it is paused.
func TestTimeLimitCountsNoPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var expired atomic.Int64
		var l TimeLimit
		l.Begin(time.Minute, func() { expired.Add(1) })
		defer l.End()
		pass := func(d time.Duration, times int64) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if expired.Load() != times {
				t.Fatalf("expired %d times, want %d", expired.Load(), times)
			}
		}
		pass(40*time.Second, 0)
		l.SetPaused(true)
		l.SetPaused(true)
		pass(time.Hour, 0)
		l.SetPaused(false)
		l.SetPaused(false)
		if left := l.Remaining(); left != 20*time.Second {
			t.Errorf("%s are left", left)
		}
		pass(19*time.Second, 0)
		pass(2*time.Second, 1)
		pass(time.Hour, 1)
	})
	var none TimeLimit
	none.Begin(0, nil)
	none.SetPaused(true)
	none.SetPaused(false)
	if left := none.Remaining(); left != 0 {
		t.Errorf("%s are left without a limit", left)
	}
	none.End()
}
