package daemon

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// TestLogThatIsCut: a command truncates its own log.
func TestLogThatIsCut(t *testing.T) {
	t.Parallel()
	b := setup(t, commandJobs, nil)
	id := b.submit("script",
		script("echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; sleep 0.3; : > /proc/self/fd/1; sleep 0.3; echo end"))
	if rec := b.awaitEnd(id); rec.Status != statefs.Completed {
		t.Errorf("status %s", rec.Status)
	}
}
