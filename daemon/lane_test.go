package daemon

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

func TestLaneGivesItsEnvironmentAndTurns(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers())
	for _, want := range []string{"a", "b", "c", "a"} {
		id := b.submit("turns", `{}`)
		b.awaitEnd(id)
		b.wantLog(id, want+" desktop of the job")
	}
	must(t, b.stop())
	b.start()
	id := b.submit("turns", `{}`)
	if rec := b.awaitEnd(id); rec.LaneTurn != 5 {
		t.Errorf("turn %d, want 5", rec.LaneTurn)
	}
	b.wantLog(id, "b desktop of the job")
	id = b.submit("asks", `{}`)
	b.awaitEnd(id)
	b.wantLog(id, "PROFILE=desktop OWN=of the lane AGENT=c")
}

func TestLaneChangesArePublished(t *testing.T) {
	t.Parallel()
	b := prepare(t, breakerJobs, howHandlers())
	b.config.Lanes = map[string]lanes.LaneConfig{"turns": {}, "one": {
		Lane:    queue.Lane{Capacity: 1},
		Breaker: &breaker.Settings{Failures: 1, Within: time.Hour, Cooldown: time.Millisecond},
	}}
	b.tellEvents()
	b.put("one.closed", "") // closed before the daemon starts, so not published
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.LaneChanged}}, 0)
	defer r.Close()
	b.remove("one.closed")
	b.toldOf(r, "lane one opened ")
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}, statefs.LaneHold{Reason: "tea"}))
	b.toldOf(r, "lane one paused tea")
	b.remove("one.paused")
	b.toldOf(r, "lane one resumed ")
	b.put("one.capacity", "3\n")
	b.toldOf(r, "lane one capacity  3")
	b.put("all.paused", "\n")
	b.toldOf(r, "lane all paused ")
	b.remove("all.paused")
	b.toldOf(r, "lane all resumed ")
	failed := b.how("fail")
	b.toldOf(r, "lane one breaker_opened a failure; the last one: handler_failed in "+failed.String())
	b.awaitEnd(b.how("well"))
	b.toldOf(r, "lane one breaker_closed ")
}
