package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// toldLanes is a lanesBench with an event log, and a reader of why operations wait, as lines.
func toldLanes(t *testing.T) (*bench, *events.Reader) {
	t.Helper()
	b := prepare(t, laneJobs, testHandlers)
	b.tellEvents()
	b.config.Lanes = map[string]LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}, "two": {Lane: queue.Lane{Capacity: 2}}}
	b.config.Limits = map[string]int{"tool": 1}
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.WaitReason}}, events.Now)
	t.Cleanup(r.Close)
	return b, r
}

func (b *bench) pauseLane(name, reason string) {
	b.t.Helper()
	must(b.t, b.tree.HoldLane(statefs.LaneFile{Lane: name, Control: statefs.LanePaused}, statefs.LaneHold{Reason: reason}))
	b.daemon.LookAtLanes()
}

// Who reads the events of an operation hears of each reason for which it waits, and nothing is written into its log for that. Nobody hears of all the
// reasons of those that nobody follows and that do not stand first.
func TestReaderOfEventsHearsEveryReason(t *testing.T) {
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

	leave := b.daemon.Followed(last, nil)
	again := b.daemon.Followed(last, nil) // two readers are told of it once
	mine := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{last}, Types: []events.Type{events.WaitReason}}, events.Now)
	defer mine.Close()
	for _, reason := range []string{"cookies", "cookies, still", ""} { // the file of a lane that is paused, again with other words
		b.pauseLane("one", reason)
		b.toldOf(mine, strings.TrimSpace("one waits: lane_paused "+reason))
	}
	again()
	b.remove("one.paused")
	b.daemon.LookAtLanes()
	b.toldOf(mine, "one waits: lane_full")
	leave()
	leave() // does nothing

	// Of the first one it is told too, but not more often than once a second: of which of the pauses nobody knows.
	b.poll("the first one is told of", func() bool {
		why, _ := b.daemon.Waiting(first)
		return b.daemon.operation(first).toldWhy.Load() == printOf(&why)
	})
	own := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{quiet}, Types: []events.Type{events.WaitReason}}, 0)
	defer own.Close()
	b.cancel(quiet)
	again = b.daemon.Followed(quiet, nil) // it has ended, and nothing comes of that
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

// noFollowers waits until nothing is kept of those that were followed.
func (b *bench) noFollowers() {
	b.t.Helper()
	b.poll("nothing is kept of who was followed", func() bool {
		b.daemon.waiters.mu.Lock()
		defer b.daemon.waiters.mu.Unlock()
		return len(b.daemon.waiters.all)+len(b.daemon.waiters.first) == 0
	})
}

// Of the operation that stands first in its lane, and with its limits, it is told when it waits for another reason, without anybody who follows it.
func TestTheFirstInLineTellsEveryReason(t *testing.T) {
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
	b.daemon.LookAtLanes()
	b.toldOf(r, "two waits: limit")
	b.cancel(first)
	b.pauseLane("two", "")
	b.toldOf(r, "two waits: lane_paused") // the second one, which is the first now
	for _, id := range []statefs.ID{second, three} {
		b.cancel(id)
	}
	b.noFollowers()
}

// Who follows is told of every kind of waiting, and again when the operation waits again; a stream of it says so in the log.
func TestFollowerIsToldAcrossStates(t *testing.T) {
	t.Parallel()
	b, _ := toldLanes(t)
	running := b.submit("one", `{}`)
	b.awaitState(running, statefs.Running)
	id := b.afterWith("one", submit.Options{Delay: time.Hour})
	leave := b.daemon.Followed(id, func() {})
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
	leave = b.daemon.Followed(id, func() {})
	full := `  Waiting: lane "one" is full, held by ` + running.String() + ".\n"
	b.awaitLog(id, full)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Resume)
	b.awaitLog(id, lineResume+"\n"+full)
	leave()
	back := b.daemon.Followed(id, func() {}) // the log does not repeat itself
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
	child := b.after("one", "", parent) // of what nobody follows the first reason is told, this one too
	mine := b.config.Events.Follow(events.Filter{IDs: []statefs.ID{child}, Types: []events.Type{events.WaitReason}}, 0)
	defer mine.Close()
	b.toldOf(mine, "one waits: after")
	b.cancel(parent)
	b.awaitState(child, statefs.FailedManual)
}

// A daemon that drains says so of what would start otherwise.
func TestFollowerIsToldOfADrain(t *testing.T) {
	t.Parallel()
	b, _ := toldLanes(t)
	running := b.submit("one", `{}`)
	b.awaitState(running, statefs.Running)
	id := b.submit("one", `{}`)
	defer b.daemon.Followed(id, nil)()
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
