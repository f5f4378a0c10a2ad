package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// put writes a file of lanes/ in place, as an editor or a shell does.
func (b *bench) put(name, text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.tree.Lanes.Dir(), name), []byte(text), 0o640))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	must(b.t, os.Remove(filepath.Join(b.tree.Lanes.Dir(), name)))
}

// lane returns the status of a lane.
func (b *bench) lane(name string) statefs.LaneStatus {
	b.t.Helper()
	all := b.daemon.Lanes.Status()
	if v := all.Lane(name); v != nil {
		return *v
	}
	b.t.Fatalf("no lane %s", name)
	return statefs.LaneStatus{}
}

func (b *bench) awaitLane(name, what string, holds func(statefs.LaneStatus) bool) {
	b.t.Helper()
	b.poll("lane "+name+" "+what, func() bool { return holds(b.lane(name)) })
}

func (b *bench) cancel(id statefs.ID) {
	b.t.Helper()
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
}

func TestLaneIsPausedByFile(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("one.paused", "")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil })
	held := b.submit("one", `{}`)
	b.awaitWaiting(held, statefs.WaitsPausedLane)
	b.put("one.paused", `{"reason": "new cookies", "by": "ann"}`+"\n")
	b.awaitLane("one", "says why", func(v statefs.LaneStatus) bool {
		return v.Paused != nil &&
			v.Paused.Reason == "new cookies"
	})
	must(t, b.stop())
	b.start()
	b.awaitWaiting(held, statefs.WaitsPausedLane) // a restart changes nothing
	if why, ok := b.daemon.Waiting(held); !ok || why.Note != "new cookies" || why.Until != nil ||
		why.Sentence() != `lane "one" is paused (new cookies)` {
		t.Errorf("it waits %+v: %s", why, why.Sentence())
	}
	b.put("all.paused", `{"until": "2099-01-02T03:04:05Z", "reason": "night"}`+"\n")
	b.poll("all are paused too", func() bool { return b.daemon.Lanes.Status().Paused != nil })
	if why, _ := b.daemon.Waiting(held); why.Note != "new cookies" {
		t.Errorf("it waits %+v, want for what lasts longer", why)
	}
	b.put("one.paused", `{"until": "2098-01-02T03:04:05Z"}`+"\n")
	b.poll("what lasts longer is said", func() bool {
		why, ok := b.daemon.Waiting(held)
		return ok && why.Note == "night" && why.Until != nil && why.Until.Year() == 2099
	})
	b.put("one.paused", `{"reason": "new cookies", "by": "ann"}`+"\n")
	b.remove("all.paused")
	b.awaitLane("one", "is paused by itself again", func(v statefs.LaneStatus) bool {
		return !v.PausedByAll && v.Paused != nil && v.Paused.Reason == "new cookies"
	})
	if v := b.lane("one"); v.Paused == nil || v.Paused.By != "ann" {
		t.Errorf("%+v", v)
	}
	b.remove("one.paused")
	b.awaitState(held, statefs.Running)
	b.cancel(held)
}

func TestAllLanesArePausedByFile(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("all.paused", "the disk is being moved\n")
	b.put("one.paused", "")
	b.poll("all are paused", func() bool { return b.daemon.Lanes.Status().Paused != nil && b.lane("one").Paused != nil })
	one, two := b.submit("one", `{}`), b.submit("two", `{}`)
	b.awaitWaiting(one, statefs.WaitsPausedLane)
	b.awaitWaiting(two, statefs.WaitsPausedLane)
	b.remove("all.paused")
	b.awaitState(two, statefs.Running)
	b.awaitWaiting(one, statefs.WaitsPausedLane) // automatically
	b.remove("one.paused")
	b.awaitState(one, statefs.Running)
	b.cancel(one)
	b.cancel(two)
}

func TestLaneGetsACapacityByFile(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running) // the daemon may see several new operations in any order
	second := b.submit("one", `{}`)
	b.awaitWaiting(second, statefs.WaitsForLane)
	b.put("one.capacity", "2\n")
	b.awaitState(second, statefs.Running)
	third := b.submit("one", `{}`)
	b.awaitWaiting(third, statefs.WaitsForLane)
	for _, bad := range []string{"-1\n", "many\n", "many"} {
		b.put("one.capacity", bad)
		b.awaitLane("one", "reports "+bad, func(v statefs.LaneStatus) bool {
			return len(v.Problems) == 1 && v.Problems[0].File == "lanes/one.capacity" && strings.Contains(v.Problems[0].Reason,
				fmt.Sprintf("capacity %q is neither", strings.TrimSpace(bad)))
		})
		if v := b.lane("one"); *v.Capacity != 2 || *v.Configured != 1 {
			t.Errorf("after %q: capacity %d", bad, *v.Capacity)
		}
	}
	b.put("one.capacity", "unlimited\n")
	b.awaitState(third, statefs.Running)
	if v := b.lane("one"); v.Capacity != nil || len(v.Problems) > 0 {
		t.Errorf("%+v", v)
	}
	b.put("one.capacity", "2\n")
	b.awaitLane("one", "has 2", func(v statefs.LaneStatus) bool { return v.Capacity != nil && *v.Capacity == 2 })
	must(t, b.stop())
	b.start()
	b.awaitLane("one", "has 2 still", func(v statefs.LaneStatus) bool { return v.Capacity != nil && *v.Capacity == 2 })
	b.remove("one.capacity")
	b.awaitLane("one", "has 1 again", func(v statefs.LaneStatus) bool { return v.Capacity != nil && *v.Capacity == 1 })
	for _, id := range []statefs.ID{first, second, third} {
		b.cancel(id)
	}
}

func TestPauseOfALaneEndsByItself(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	until := time.Now().Add(300 * time.Millisecond)
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}, statefs.LaneHold{Until: &until}))
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "all", Control: statefs.LaneClosed}, statefs.LaneHold{Until: &until}))
	b.daemon.Lanes.Apply()
	if b.lane("one").Paused == nil && time.Now().Before(until) {
		t.Error("a look does not see a file that was there before it")
	}
	id := b.submit("one", `{}`)
	b.awaitState(id, statefs.Running)
	b.poll("lanes/ is empty", func() bool {
		files, _, err := b.tree.Lanes.List()
		return err == nil && len(files) == 0
	})
	b.cancel(id)
	// Holds that expired before the daemon started are removed too, and a forward clock change is
	// noticed.
	must(t, b.stop())
	hour := time.Now().Add(time.Hour)
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}, statefs.LaneHold{Until: &until}))
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "two", Control: statefs.LanePaused}, statefs.LaneHold{Until: &hour}))
	b.start()
	one, two := b.submit("one", `{}`), b.submit("two", `{}`)
	b.awaitState(one, statefs.Running)
	b.awaitWaiting(two, statefs.WaitsPausedLane)
	b.jump.Store(int64(2 * time.Hour))
	b.daemon.Lanes.Apply()
	b.awaitState(two, statefs.Running)
	b.cancel(one)
	b.cancel(two)
}

// all.capacity is the capacity of the lanes that have no file of their own.
func TestCapacityOfAllLanes(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	configured := b.lane("two").Capacity
	has := func(want int) func(statefs.LaneStatus) bool {
		return func(v statefs.LaneStatus) bool { return v.Capacity != nil && *v.Capacity == want }
	}
	b.put("one.capacity", "5\n")
	b.put("all.capacity", "7\n")
	b.awaitLane("two", "has that of all", has(7))
	b.awaitLane("default", "has that of all", has(7))
	b.awaitLane("one", "has its own", has(5))
	b.remove("one.capacity")
	b.awaitLane("one", "has that of all", has(7))
	b.put("all.capacity", "many\n")
	b.poll("what means nothing is reported", func() bool {
		all := b.daemon.Lanes.Status().Problems
		return len(all) == 1 && all[0].File == "lanes/all.capacity"
	})
	b.remove("all.capacity")
	b.awaitLane("two", "has its own again", func(v statefs.LaneStatus) bool {
		return v.Capacity == configured || v.Capacity != nil && configured != nil && *v.Capacity == *configured
	})
	if problems := b.daemon.Lanes.Status().Problems; len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
}

func TestFilesThatControlNoLane(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("nowhere.paused", "")
	b.put("one.pausd", "")
	must(t, os.Symlink("/etc/hostname", filepath.Join(b.tree.Lanes.Dir(), "one.paused")))
	b.poll("they are reported", func() bool {
		return len(b.daemon.Lanes.Status().Problems) == 2 &&
			len(b.lane("one").Problems) == 1
	})
	for i, want := range []statefs.LaneProblem{
		{File: "lanes/nowhere.paused", Reason: `there is no lane "nowhere"; the lanes are default, hourly, one, rated, two`},
		{File: "lanes/one.pausd", Reason: "its name is not LANE.paused, LANE.closed or LANE.capacity"},
	} {
		if got := b.daemon.Lanes.Status().Problems[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	id := b.submit("one", `{}`)
	b.awaitState(id, statefs.Running) // a link pauses nothing
	b.cancel(id)
}

// A removed folder takes its pauses with it, and the files of its replacement have effect.
func TestLanesFolderIsReplaced(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("one.paused", "")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil })
	must(t, os.RemoveAll(b.tree.Lanes.Dir()))
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool { return v.Paused == nil })
	b.put("one.closed", "")
	b.awaitLane("one", "is closed", func(v statefs.LaneStatus) bool { return v.Closed != nil })
}
