package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// toldLanes is a lanesBench with an event log, and a reader of waiting reasons, as lines.
func toldLanes(t *testing.T) (*bench, *events.Reader) {
	t.Helper()
	b := prepare(t, laneJobs, testHandlers)
	b.tellEvents()
	b.config.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}, "two": {Lane: queue.Lane{Capacity: 2}}}
	b.config.Limits = map[string]int{"tool": 1}
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.WaitReason}}, events.Now)
	t.Cleanup(r.Close)
	return b, r
}

func (b *bench) pauseLane(name, reason string) {
	b.t.Helper()
	must(b.t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: name, Control: statefs.LanePaused}, statefs.LaneHold{Reason: reason}))
	b.daemon.Lanes.Apply()
}

// An event reader that follows an operation receives each waiting reason, and none is logged for
// it. Operations without a follower that are not heads publish only their first reason.
func TestEveryWaitReasonIsPublishedToEventReaders(t *testing.T) {
	t.Parallel()
	b, r := toldLanes(t)
	running := b.submit("one", `{}`)
	b.awaitState(running, statefs.Running)
	first := b.submit("one", `{}`)
	b.toldOf(r, "one waits: lane_full")
	quiet := b.submit("one", `{}`)
	b.toldOf(r, "one waits: lane_full")
	last := b.submit("one", `{}`)
	b.toldOf(r, "one waits: lane_full")

	leave := b.daemon.Follow(last, nil)
	again := b.daemon.Follow(last, nil) // two readers cause one event
	mine := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{last}, Types: []events.Type{events.WaitReason}},
		events.Now)
	defer mine.Close()
	for _, reason := range []string{"cookies", "cookies, still", ""} {
		// the same pause again, with another reason
		b.pauseLane("one", reason)
		b.toldOf(mine, strings.TrimSpace("one waits: lane_paused "+reason))
	}
	again()
	b.remove("one.paused")
	b.daemon.Lanes.Apply()
	b.toldOf(mine, "one waits: lane_full")
	leave()
	leave() // does nothing

	// Reasons of the head are published too, but at most once a second, so which of the pauses it
	// reports is open.
	b.poll("the first one is told of", func() bool {
		why, _ := b.daemon.Waiting(first)
		return b.daemon.operation(first).publishedReason.Load() == fingerprintOf(&why)
	})
	own := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{quiet}, Types: []events.Type{events.WaitReason}}, 0)
	defer own.Close()
	b.cancel(quiet)
	again = b.daemon.Follow(quiet, nil) // it has ended, so this adds nothing
	again()
	b.toldOf(own, "one waits: lane_full")
	if frames, _ := own.Take(); len(frames) > 0 {
		t.Errorf("of one that nobody follows is told %s", frames[0].JSON)
	}
	for _, id := range []statefs.ID{last, first} {
		b.cancel(id)
		b.wantLog(id, lineCancel)
	}
	b.cancel(running)
	b.noFollowers()
}

// noFollowers waits until no state of followed operations is left.
func (b *bench) noFollowers() {
	b.t.Helper()
	b.poll("nothing is kept of who was followed", func() bool {
		b.daemon.waitFollowers.mu.Lock()
		defer b.daemon.waitFollowers.mu.Unlock()
		return len(b.daemon.waitFollowers.byID) == 0
	})
}

// Each waiting reason of the head of a lane, and of the head among operations with the same limits,
// is published without a follower.
func TestEveryWaitReasonOfTheFirstInLineIsPublished(t *testing.T) {
	t.Parallel()
	b, r := toldLanes(t)
	three := b.submit("three", `{}`) // has the limit
	b.awaitState(three, statefs.Running)
	first := b.submit("two", `{}`)
	b.toldOf(r, "two waits: limit")
	second := b.submit("two", `{}`)
	b.toldOf(r, "two waits: limit")
	b.pauseLane("two", "night")
	b.toldOf(r, "two waits: lane_paused night")
	b.remove("two.paused")
	b.daemon.Lanes.Apply()
	b.toldOf(r, "two waits: limit")
	b.cancel(first)
	b.pauseLane("two", "")
	b.toldOf(r, "two waits: lane_paused") // of the second one, which is the head now
	for _, id := range []statefs.ID{second, three} {
		b.cancel(id)
	}
	b.noFollowers()
}

// A follower gets every kind of waiting reason, and again when the operation waits again; for a
// stream reader they are logged.
func TestWaitReasonsArePublishedAcrossStates(t *testing.T) {
	t.Parallel()
	b, _ := toldLanes(t)
	running := b.submit("one", `{}`)
	b.awaitState(running, statefs.Running)
	id := b.afterWith("one", submit.Options{Delay: time.Hour})
	leave := b.daemon.Follow(id, func() {})
	r := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{id}, Types: []events.Type{events.WaitReason}}, 0)
	defer r.Close()
	b.toldOf(r, "one waits: not_before")
	b.mv(statefs.MarkerName(id, statefs.Scheduled), statefs.MarkerName(id, statefs.Paused))
	b.awaitLog(id, linePause+"\n")
	b.touch(id, statefs.Resume)
	b.toldOf(r, "one waits: not_before")
	b.cancel(id)
	leave()

	id = b.submit("one", `{}`)
	leave = b.daemon.Follow(id, func() {})
	full := `  Waiting: lane "one" is full, held by ` + running.String() + ".\n"
	b.awaitLog(id, full)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Resume)
	b.awaitLog(id, lineResume+"\n"+full)
	leave()
	back := b.daemon.Follow(id, func() {}) // the log does not repeat the reason
	b.cancel(running)
	b.awaitState(id, statefs.Running)
	b.cancel(id)
	if n := strings.Count(b.log(id), full); n != 2 {
		t.Errorf("%q says %d times why it waited", b.log(id), n)
	}
	back()
	b.noFollowers()

	parent := b.submit("one", `{}`)
	b.awaitState(parent, statefs.Running)
	child := b.after("one", "", parent) // without a follower the first reason is published, this one too
	mine := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{child}, Types: []events.Type{events.WaitReason}}, 0)
	defer mine.Close()
	b.toldOf(mine, "one waits: after")
	b.cancel(parent)
	b.awaitState(child, statefs.FailedManual)
}

// A draining daemon publishes that as the waiting reason of operations that could start otherwise.
func TestDrainIsPublishedAsWaitReason(t *testing.T) {
	t.Parallel()
	b, _ := toldLanes(t)
	running := b.submit("one", `{}`)
	b.awaitState(running, statefs.Running)
	id := b.submit("one", `{}`)
	defer b.daemon.Follow(id, nil)()
	r := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{id}, Types: []events.Type{events.WaitReason}}, 0)
	defer r.Close()
	b.toldOf(r, "one waits: lane_full")
	b.daemon.Drain()
	b.cancel(running)
	b.toldOf(r, "one waits: draining")
	late := b.submit("two", `{}`)
	if why := b.awaitWaiting(late, statefs.WaitsForNextDaemon); why.Sentence() == "" {
		t.Error("it says nothing")
	}
}
