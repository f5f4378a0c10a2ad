package work

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// The next daemon never gives work more than its whole time limit, whatever happened to the clock
// since the work began.
func TestRestOfTimeWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rec := &statefs.Record{StartedAt: &began, Transitions: []statefs.PastTransition{
		{From: statefs.Queued, To: statefs.Running, At: began},
		{From: statefs.Running, To: statefs.Paused, At: began.Add(10 * time.Minute)},
		{From: statefs.Paused, To: statefs.Running, At: began.Add(20 * time.Minute)},
	}}
	for name, test := range map[string]struct{ now, want time.Duration }{
		"no jump":   {30 * time.Minute, 40 * time.Minute},
		"back":      {-day, 50 * time.Minute}, // the first ten minutes are recorded
		"far back":  {-50 * 365 * day, 50 * time.Minute},
		"ahead":     {day, 1}, // the same as a day without a daemon
		"far ahead": {50 * 365 * day, 1},
	} {
		r := &task{def: &catalog.Definition{Timeout: time.Hour}, elapsed: rec.ActiveTime(began.Add(test.now))}
		if got := r.remainingTimeout(); got != test.want {
			t.Errorf("%s: %s are left, want %s", name, got, test.want)
		}
	}
}

// The time between heartbeats is measured by a clock that cannot be set. With a clock that is set
// back, there would be none for as long as that takes to catch up.
func TestHeartbeatIsNotByTheWallClock(t *testing.T) {
	t.Parallel()
	r := &pulse{report: new(Report), begunAt: time.Now().Add(-logHeartbeatEvery)}
	r.progress.write = func(statefs.Progress) error { return nil }
	r.noteLogWrite()
	if at := time.Duration(r.lastHeartbeat.Load()); at < logHeartbeatEvery || at > 2*time.Minute {
		t.Errorf("the first sign of life is at %s", at)
	}
}
