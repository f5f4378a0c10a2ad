package work

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of a timeout is stopped while the work is paused.
func TestTimeoutCountsNoPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Int64
		var o timeout
		o.begin(time.Minute, time.Now(), func() { fired.Add(1) })
		defer o.end()
		pass := func(d time.Duration, times int64) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if fired.Load() != times {
				t.Fatalf("fired %d times, want %d", fired.Load(), times)
			}
		}
		pass(40*time.Second, 0)
		o.setPaused(true, time.Now())
		o.setPaused(true, time.Now())
		pass(time.Hour, 0)
		o.setPaused(false, time.Now())
		o.setPaused(false, time.Now())
		pass(19*time.Second, 0)
		pass(2*time.Second, 1)
		pass(time.Hour, 1)
	})
	var none timeout
	none.begin(0, time.Now(), nil)
	none.setPaused(true, time.Now())
	none.setPaused(false, time.Now())
	none.end()
}
