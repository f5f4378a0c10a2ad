package daemon

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
)

// Operations beyond the retention are deleted while the daemon runs, not only at the next start.
func TestRetentionByCountWhileRunning(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	b.config.Retention = history.Retention{Count: 2}
	b.config.SweepInterval = 10 * time.Millisecond
	b.start()
	for range 4 {
		b.submit("count", `{}`)
	}
	b.await("two of four are left", func() bool {
		return len(b.listed(history.Query{})) == 2 && b.daemon.Health().Counters["finished"] == 4
	})
}
