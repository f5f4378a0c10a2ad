package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
)

// overdue is how long a delivery must be pending at an unreachable target before the daemon reports itself as degraded.
const overdue = time.Hour

// degraded describes in sentences what needs attention: targets that have been unreachable for longer than overdue, and
// deliveries that wait for a person.
func degraded(out *statefs.OutboxStatus, now time.Time) []string {
	said := []string{}
	for i := range out.Targets {
		t := &out.Targets[i]
		if !t.Down || t.OldestAt == nil || now.Sub(*t.OldestAt) < overdue {
			continue
		}
		said = append(said, fmt.Sprintf("%s is down: %s for it, the oldest for %s; the last error: %s",
			front.Printable(t.Name, 300), waiting(t.Pending), strings.TrimSuffix(now.Sub(*t.OldestAt).Truncate(time.Minute).String(),
				"0s"), front.Printable(t.Error, 500)))
	}
	if n := out.FailedManual; n > 0 {
		said = append(said, waiting(n)+" for a person: 'jobdir outbox --status failed_manual' has the reason")
	}
	return said
}

func waiting(n int) string {
	if n == 1 {
		return "1 delivery waits"
	}
	return fmt.Sprintf("%d deliveries wait", n)
}
