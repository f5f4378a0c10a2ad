package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// Each start before a restart counts once against the rate of its lane, whether its operation has
// ended or continues.
func TestARateCountsWhatHasEndedBeforeARestart(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{"hourly": {Lane: queue.Lane{
		Capacity: queue.Unlimited,
		Starts:   3, Per: time.Hour,
	}}}
	b.start()
	first := b.awaitEnd(b.submit("hourly", `{}`))
	if got := b.tree.Lanes.Times("hourly", statefs.LaneStarts); len(got) != 1 || !got[0].Equal(*first.StartedAt) {
		t.Fatalf("noted %v, want %s", got, first.StartedAt)
	}
	must(t, b.stop())
	b.start()
	b.awaitEnd(b.submit("hourly", `{}`))
	b.awaitEnd(b.submit("hourly", `{}`)) // the third
	must(t, b.stop())
	b.start()
	late := b.submit("hourly", `{}`)
	if why := b.awaitWaiting(late, statefs.WaitsForRate); why.Until == nil ||
		why.Until.Sub(*first.StartedAt).Round(time.Minute) != time.Hour {
		t.Errorf("it waits %+v, want until an hour after %s", why, first.StartedAt)
	}
	b.jump.Store(int64(2 * time.Hour))
	b.daemon.admission.update(func(*queue.Queue) {})
	b.awaitEnd(late)
	if got := b.tree.Lanes.Times("hourly", statefs.LaneStarts); len(got) != 3 {
		t.Errorf("%d starts are noted, and three count", len(got))
	}
}

// A start that is both in a live record and in the start history counts once.
func TestAStartIsCountedOnceAfterARestart(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(laneJobs, "name: hourly\nlane: hourly\nhandler: count",
		"name: hourly\nlane: hourly\nparams: {n: {type: integer, default: 0}}\nrun: [sh, -c, 'echo begins; exec sleep 1000']"))
	k.config.Lanes = map[string]lanes.LaneConfig{"hourly": {Lane: queue.Lane{
		Capacity: queue.Unlimited,
		Starts:   2, Per: time.Hour,
	}}}
	k.start()
	first := k.submit("hourly", `{}`)
	k.awaitLog(first, "begins")
	k.abandon(ErrDetach)
	must(t, <-k.ended)
	k.daemon = nil
	must(t, k.pool.Close())
	k.start()
	second := k.submit("hourly", `{"n": 1}`)
	k.awaitState(second, statefs.Running) // of two new operations, the daemon may see either first
	third := k.submit("hourly", `{"n": 2}`)
	k.awaitWaiting(third, statefs.WaitsForRate)
	for _, id := range []statefs.ID{first, second, third} {
		k.touch(id, statefs.Cancel)
		k.awaitEnd(id)
	}
}

// The history of a lane with many starts is not written on each start, and is complete when the
// daemon ends.
func TestStartHistoryIsWrittenInBatches(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{
		"many": {Lane: queue.Lane{Capacity: queue.Unlimited, Starts: 640, Per: time.Hour}},
		"gap":  {Lane: queue.Lane{Capacity: queue.Unlimited, Gap: time.Second}},
	}
	b.start()
	l := b.daemon.Lanes
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	want := func(lane string, count int, last time.Time) {
		t.Helper()
		got := b.tree.Lanes.Times(lane, statefs.LaneStarts)
		if len(got) != count || count > 0 && !got[count-1].Equal(last) {
			t.Errorf("%s: %d starts are noted, the last %v, want %d up to %s", lane, len(got),
				got[max(0, len(got)-1):], count, last)
		}
	}
	for i := range 2000 {
		l.Started("many", at.Add(time.Duration(i)*time.Second))
		l.Started("gap", at.Add(time.Duration(i)*time.Second))
		l.Started("one", at) // its lane has no rate
	}
	want("many", 640, at.Add(1999*time.Second))
	for i := range 5 {
		l.Started("many", at.Add(time.Duration(2000+i)*time.Second))
	}
	want("many", 640, at.Add(1999*time.Second))
	want("gap", 1, at.Add(1999*time.Second))
	want("one", 0, at)
	must(t, b.stop())
	want("many", 640, at.Add(2004*time.Second))
}

// Failures below the threshold still count after a restart, for the same time. Failures that have
// opened the breaker do not count again.
func TestFailuresOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers())
	failures := filepath.Join(b.dir, "lanes", "one.failures")
	b.awaitEnd(b.how("fail"))
	if got := b.tree.Lanes.Times("one", statefs.LaneFailures); len(got) != 1 {
		t.Fatalf("%d failures are noted", len(got))
	}
	must(t, b.stop())
	b.start()
	if v := b.lane("one"); v.Breaker.State != string(breaker.Closed) || v.Breaker.Failures != 1 || len(v.Problems) > 0 {
		t.Errorf("%+v", v)
	}
	b.awaitEnd(b.how("fail"))
	b.awaitLane("one", "is paused by its breaker", func(v statefs.LaneStatus) bool {
		return v.Paused != nil &&
			v.Paused.By == statefs.HeldByBreaker
	})
	if _, err := os.Lstat(failures); !os.IsNotExist(err) {
		t.Errorf("what opened the breaker is still noted: %v", err)
	}
	b.awaitEnd(b.how("well")) // the trial, which closes the breaker
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool {
		return v.Breaker.State == string(breaker.Closed) && v.Breaker.Failures == 0
	})
	// Old failures do not count, whichever daemon recorded them.
	must(t, b.stop())
	hours := []time.Time{time.Now().Add(-3 * time.Hour), time.Now().Add(-2 * time.Hour)}
	must(t, os.WriteFile(failures, []byte(hours[0].Format(time.RFC3339Nano)+"\n"+hours[1].Format(time.RFC3339Nano)+"\n"),
		0o640))
	b.start()
	b.awaitEnd(b.how("fail"))
	if v := b.lane("one"); v.Breaker.State != string(breaker.Closed) || v.Breaker.Failures != 1 || v.Paused != nil {
		t.Errorf("%+v", v)
	}
	if got := b.tree.Lanes.Times("one", statefs.LaneFailures); len(got) != 1 || slices.ContainsFunc(hours, got[0].Equal) {
		t.Errorf("noted: %v", got)
	}
}
