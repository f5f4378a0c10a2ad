package daemon

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

const laneJobs = `
group: test
name: one
lane: one
handler: wait
---
group: test
name: two
lane: two
limits: [tool]
handler: wait
---
group: test
name: three
limits: [tool]
handler: wait
---
group: test
name: keyed
params: {key: {type: string, required: true}, n: {type: integer, default: 0}}
key: ${params.key}
handler: wait
---
group: test
name: lost
lane: nowhere
handler: wait
---
group: test
name: rated
lane: rated
handler: count
---
group: test
name: hourly
lane: hourly
handler: count
---
group: test
name: fails
lane: one
run: [/no/such/program]
`

// lanesBench starts a daemon with the lanes one and two, of capacity one and two, and the limit
// tool for one operation in all lanes.
func lanesBench(t *testing.T) *bench {
	t.Helper()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{
		"one":    {Lane: queue.Lane{Capacity: 1}},
		"two":    {Lane: queue.Lane{Capacity: 2}},
		"hourly": {Lane: queue.Lane{Capacity: queue.Unlimited, Starts: 1, Per: time.Hour}},
		"rated":  {Lane: queue.Lane{Capacity: queue.Unlimited, Starts: 2, Per: 50 * time.Millisecond}},
	}
	b.config.Limits = map[string]int{"tool": 1}
	b.start()
	return b
}

// awaitWaiting waits until an operation waits for a reason.
func (b *bench) awaitWaiting(id statefs.ID, reason statefs.WaitReason) (why statefs.Waiting) {
	b.t.Helper()
	b.poll("operation waits: "+string(reason), func() bool {
		var waits bool
		why, waits = b.daemon.Waiting(id)
		return waits && why.Reason == reason
	})
	return why
}

func TestLaneStartsNoMoreThanItHolds(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	second, third := b.submit("one", `{}`), b.submit("one", `{}`)
	why := b.awaitWaiting(second, statefs.WaitsForLane)
	if why.HeldBy != first || why.Position != 1 || why.Lane != "one" || why.Since == nil {
		t.Errorf("the second waits %+v", why)
	}
	if why := b.awaitWaiting(third, statefs.WaitsForLane); why.Position != 2 {
		t.Errorf("the third waits %+v", why)
	}
	if _, waits := b.daemon.Waiting(first); waits {
		t.Error("what runs waits")
	}
	// A paused operation whose work still exists keeps its place; its end releases the place.
	b.touch(first, statefs.Pause)
	b.awaitState(first, statefs.Paused)
	if why := b.awaitWaiting(second, statefs.WaitsForLane); why.HeldBy != first {
		t.Errorf("while it is paused the second waits %+v", why)
	}
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
	b.awaitState(second, statefs.Running)
	// An operation that is cancelled while it waits frees its position for those behind it.
	fourth := b.submit("one", `{}`)
	b.awaitWaiting(fourth, statefs.WaitsForLane)
	b.touch(third, statefs.Cancel)
	b.awaitEnd(third)
	b.poll("the fourth moves up", func() bool {
		why, waits := b.daemon.Waiting(fourth)
		return waits && why.Position == 1
	})
	b.touch(second, statefs.Cancel)
	b.awaitState(fourth, statefs.Running)
	b.touch(fourth, statefs.Cancel)
	b.awaitEnd(fourth)
}

// An operation that is paused before it starts lets others pass, and gets its position back on
// resume.
func TestPausedInTheQueue(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	second, third := b.submit("one", `{}`), b.submit("one", `{}`)
	b.awaitWaiting(second, statefs.WaitsForLane)
	b.touch(second, statefs.Pause)
	b.awaitState(second, statefs.Paused)
	b.touch(first, statefs.Cancel)
	b.awaitState(third, statefs.Running)
	b.touch(second, statefs.Resume)
	b.awaitWaiting(second, statefs.WaitsForLane)
	b.touch(third, statefs.Cancel)
	b.awaitState(second, statefs.Running)
	b.touch(second, statefs.Cancel)
	b.awaitEnd(second)
}

// A limit counts across lanes. Every way out of running releases it, including a failed start.
func TestLimitAcrossLanes(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	two := b.submit("two", `{}`)
	b.awaitState(two, statefs.Running)
	three := b.submit("three", `{}`)
	if why := b.awaitWaiting(three, statefs.WaitsForLimit); why.Limit != "tool" || why.HeldBy != two {
		t.Errorf("it waits %+v", why)
	}
	b.touch(two, statefs.Cancel)
	b.awaitState(three, statefs.Running)
	b.touch(three, statefs.Cancel)
	b.awaitEnd(three)
	for range 3 {
		if rec := b.awaitEnd(b.submit("fails", `{}`)); rec.Status != statefs.Failed {
			t.Errorf("status %s", rec.Status)
		}
	}
	b.poll("nothing is held", func() bool {
		for _, l := range b.daemon.admission.Lanes() {
			if l.Running > 0 || l.Waiting > 0 {
				return false
			}
		}
		return b.daemon.admission.Limits()[0].Running == 0
	})
}

func TestKeyIsSerial(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("keyed", `{"key": "a"}`)
	b.awaitState(first, statefs.Running)
	second, other := b.submit("keyed", `{"key": "a", "n": 1}`), b.submit("keyed", `{"key": "b"}`)
	b.awaitState(other, statefs.Running) // another key does not wait
	if why := b.awaitWaiting(second, statefs.WaitsForKey); why.HeldBy != first || why.Key != "a" {
		t.Errorf("it waits %+v", why)
	}
	b.touch(first, statefs.Cancel)
	b.awaitState(second, statefs.Running)
	for _, id := range []statefs.ID{second, other} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
}

// Work that runs when a daemon restarts holds its places before anything starts.
func TestPlacesAfterARestart(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(laneJobs, "name: one\nlane: one\nhandler: wait",
		"name: one\nlane: one\nrun: [sleep, '1000']"))
	k.config.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}
	k.start()
	first := k.submit("one", `{}`)
	k.awaitState(first, statefs.Running)
	var more []statefs.ID
	for range 3 {
		more = append(more, k.submit("one", `{}`))
	}
	k.awaitWaiting(more[2], statefs.WaitsForLane)
	for range 2 {
		k.abandon(ErrDetach)
		must(t, <-k.ended)
		k.daemon = nil
		must(t, k.pool.Close())
		k.start()
		if why := k.awaitWaiting(more[0], statefs.WaitsForLane); why.HeldBy != first || why.Position != 1 {
			t.Errorf("after a restart the second waits %+v", why)
		}
	}
	for i, id := range append([]statefs.ID{first}, more...) {
		k.awaitState(id, statefs.Running)
		for _, later := range more[min(i, len(more)):] {
			if rec, err := k.tree.ReadRecord(later); err != nil || rec.Starts > 0 {
				t.Errorf("%s has started while %s ran, %v", later, id, err)
			}
		}
		k.touch(id, statefs.Cancel)
		k.awaitEnd(id)
	}
}

// A rate limit delays starts only by time, and one timer ends the wait.
func TestRateOfALane(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.awaitEnd(b.submit("hourly", `{}`)) // one at a time: of two, either may start first
	slow := b.submit("hourly", `{}`)
	if why := b.awaitWaiting(slow, statefs.WaitsForRate); why.Until == nil || why.Until.Before(time.Now()) {
		t.Errorf("it waits %+v", why)
	}
	b.touch(slow, statefs.Cancel)
	b.awaitEnd(slow)
	for range 6 {
		b.submit("rated", `{}`)
	}
	b.await("all have ended", func() bool {
		listing, err := b.tree.List()
		return err == nil && len(listing.Markers) == 0
	})
}

// An operation in a lane that is no longer configured waits, with that as its reason.
func TestUnknownLane(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	id := b.submit("lost", `{}`)
	if why := b.awaitWaiting(id, statefs.WaitsUnknownLane); !strings.Contains(why.Sentence(), `no lane "nowhere"`) {
		t.Errorf("it waits: %s", why.Sentence())
	}
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
}

// The log of a followed operation contains each waiting reason once; other logs contain none.
func TestFollowedOperationSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	second, quiet := b.submit("one", `{}`), b.submit("one", `{}`)
	b.awaitWaiting(quiet, statefs.WaitsForLane)
	woken := make(chan struct{}, 3)
	for range 3 {
		b.daemon.Follow(second, func() { woken <- struct{}{} })
	}
	for range 3 {
		<-woken
	}
	full := `  Waiting: lane "one" is full, held by ` + first.String() + "."
	b.awaitLog(second, full+"\n")
	b.daemon.admission.SetLanes(lanes.Change{Lane: "one", Config: queue.Lane{Capacity: 1, Paused: true}})
	b.awaitLog(second, full+"\n  Waiting: lane \"one\" is paused.\n")
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
	b.daemon.admission.SetLanes(lanes.Change{Lane: "one", Config: queue.Lane{Capacity: 1}})
	b.awaitState(second, statefs.Running)
	for _, id := range []statefs.ID{second, quiet} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
	b.wantLog(quiet, lineCancel)
}

// Prioritize changes the order of waiting operations. An empty request moves the operation to the
// front. Invalid arguments change nothing and are logged.
func TestPrioritize(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	second, third, fourth := b.submit("one", `{}`), b.submit("one", `{}`), b.submit("one", `{}`)
	position := func(id statefs.ID, want int) {
		t.Helper()
		b.poll("it has its place", func() bool {
			why, waits := b.daemon.Waiting(id)
			return waits && why.Position == want
		})
	}
	position(fourth, 3)
	must(t, b.tree.Request(t.Context(), third, statefs.Prioritize, json.RawMessage(`{"priority": 7}`)))
	b.poll("the request is carried out", func() bool {
		return !b.tree.Requested(third, statefs.Prioritize) && !b.tree.HasTakenRequest(third)
	})
	if why, _ := b.daemon.Waiting(third); why.Position != 1 { // a client may wait for that
		t.Errorf("it is carried out, and the place is %d", why.Position)
	}
	b.touch(fourth, statefs.Prioritize)
	position(fourth, 1)
	position(third, 2)
	b.awaitLog(fourth, "  Prioritize requested: its priority is now 8.\n")
	for _, wrong := range []string{`{"priority": "high"}`, `{"priority": 1000001}`, `{}`} {
		must(t, b.tree.Request(t.Context(), second, statefs.Prioritize, json.RawMessage(wrong)))
		b.awaitLog(second, "nothing is changed.\n")
	}
	b.touch(first, statefs.Prioritize)
	b.awaitLog(first, "  Prioritize requested while running: nothing to do.\n")
	must(t, b.stop()) // the interrupted first one waits with the others
	b.start()
	b.awaitState(fourth, statefs.Running)
	for _, id := range []statefs.ID{fourth, third, first, second} {
		b.awaitState(id, statefs.Running)
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
}

// An operation that came after another waits since the end of that one, also when its priority changes.
func TestPrioritizeKeepsSinceWhenAnOperationWaits(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	holder, parent := b.submit("one", `{}`), b.submit("two", `{}`)
	b.awaitState(holder, statefs.Running)
	b.awaitState(parent, statefs.Running)
	child := b.after("one", statefs.RequireEnd, parent)
	b.awaitWaiting(child, statefs.WaitsForOthers)
	other := b.submit("one", `{}`)
	b.awaitWaiting(other, statefs.WaitsForLane)
	b.cancel(parent)
	b.awaitWaiting(child, statefs.WaitsForLane)
	for _, id := range []statefs.ID{child, other} {
		must(t, b.tree.Request(t.Context(), id, statefs.Prioritize, json.RawMessage(`{"priority": 5}`)))
		b.awaitLog(id, "  Prioritize requested: its priority is now 5.\n")
		b.poll("the request is carried out", func() bool { return !b.tree.HasTakenRequest(id) })
	}
	for place, id := range []statefs.ID{other, child} {
		if why, _ := b.daemon.Waiting(id); why.Position != place+1 {
			t.Errorf("%s has place %d, want %d", id, why.Position, place+1)
		}
	}
}

// A rate limit counts the starts of an earlier daemon whose work continues.
func TestRateAfterARestart(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, strings.ReplaceAll(laneJobs, "name: hourly\nlane: hourly\nhandler: count",
		"name: hourly\nlane: hourly\nparams: {n: {type: integer, default: 0}}\nrun: [sleep, '1000']"))
	k.config.Lanes = map[string]lanes.LaneConfig{"hourly": {Lane: queue.Lane{
		Capacity: queue.Unlimited,
		Starts:   1, Per: time.Hour,
	}}}
	k.start()
	first := k.submit("hourly", `{}`)
	k.awaitState(first, statefs.Running)
	k.abandon(ErrDetach)
	must(t, <-k.ended)
	k.daemon = nil
	must(t, k.pool.Close())
	k.start()
	second := k.submit("hourly", `{"n": 1}`)
	k.awaitWaiting(second, statefs.WaitsForRate)
	for _, id := range []statefs.ID{first, second} {
		k.touch(id, statefs.Cancel)
		k.awaitEnd(id)
	}
}

// A draft that is refused starts nothing: while it may still be refused, no operation has the turn only because the
// draft would change the order of the key.
func TestRefusedSubmitDoesNotChangeTheOrderOfItsKey(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	def := b.catalog.Get("test", "one")
	params, err := def.BindJSON([]byte(`{}`))
	must(t, err)
	draft := func(lane, order string, priority int) statefs.Submission {
		s, err := submit.Build(def, params, submit.Options{}, time.Now())
		must(t, err)
		s.Lane, s.Key, s.KeyOrder, s.Priority = lane, "k", order, priority
		return s
	}
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	urgent, err := publish(b.tree, draft("one", string(catalog.KeyByPriority), 5))
	must(t, err)
	b.awaitWaiting(urgent.ID, statefs.WaitsForLane)
	later, err := publish(b.tree, draft("two", string(catalog.KeyByPriority), 0))
	must(t, err)
	behind := func(want statefs.ID) {
		t.Helper()
		if why := b.awaitWaiting(later.ID, statefs.WaitsForKey); why.HeldBy != want {
			t.Errorf("it waits for %s, want %s", why.HeldBy, want)
		}
	}
	behind(urgent.ID)
	arriving, err := b.tree.Draft(draft("two", "", 0))
	must(t, err)
	refused, err := b.tree.Draft(draft("two", "", 0))
	must(t, err)
	b.tree.Discard(refused)
	behind(arriving.ID)
	b.tree.Discard(arriving)
	behind(urgent.ID)
	for _, id := range []statefs.ID{first, urgent.ID, later.ID} {
		b.touch(id, statefs.Cancel)
		b.awaitEnd(id)
	}
}
