package daemon

import (
	"testing"

	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const placeJobs = `
group: test
name: moves
lane: wide
steps:
  - {name: one, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/one; do sleep 0.02; done"]}
  - {name: two, needs: [one], lane: narrow, limits: [tool], run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/two; do sleep 0.02; done"]}
  - {name: three, needs: [two], run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/three; do sleep 0.02; done"]}
---
group: test
name: aside
lane: wide
steps:
  - {name: main, run: [echo, main]}
  - {name: one, optional: true, lane: narrow, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/one; do sleep 0.02; done"]}
  - {name: two, optional: true, limits: [tool], run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/two; do sleep 0.02; done"]}
`

func placed(t *testing.T) *bench {
	t.Helper()
	b := prepare(t, placeJobs, nil)
	b.config.Lanes = map[string]lanes.LaneConfig{
		"wide":   {Lane: queue.Lane{Capacity: 2}},
		"narrow": {Lane: queue.Lane{Capacity: 1}},
	}
	b.config.Limits = map[string]int{"tool": 1}
	b.start()
	return b
}

// held returns how much of the lanes and of the limit is in use.
func (b *bench) held() (wide, narrow, tool int) {
	for _, l := range b.daemon.admission.Lanes() {
		switch l.Name {
		case "wide":
			wide = l.Running
		case "narrow":
			narrow = l.Running
		case noLane:
			b.t.Error("the lane of no lane is shown")
		}
	}
	for _, l := range b.daemon.admission.Limits() {
		tool = l.Running
	}
	return wide, narrow, tool
}

func (b *bench) awaitHeld(wide, narrow, tool int) {
	b.t.Helper()
	b.poll("the places are as they should be", func() bool {
		w, n, l := b.held()
		return w == wide && n == narrow && l == tool
	})
}

// A step holds a lane and limits of its own only while it runs, and holds none while it waits for
// them.
func TestStepsTakePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := placed(t)
	first, second := b.submit("moves", `{}`), b.submit("moves", `{}`)
	b.awaitStep(first, "one", steps.Running)
	b.awaitStep(second, "one", steps.Running)
	b.awaitHeld(2, 0, 0)
	b.artifact(first, "one")
	b.awaitStep(first, "two", steps.Running)
	b.awaitHeld(1, 1, 1)
	b.artifact(second, "one")
	if why := b.awaitWaiting(second, statefs.WaitsForLane); why.Lane != "narrow" || why.HeldBy != first {
		t.Errorf("waits %+v", why)
	}
	b.awaitHeld(0, 1, 1)
	b.artifact(first, "two")
	b.awaitStep(first, "three", steps.Running)
	b.awaitStep(second, "two", steps.Running)
	b.awaitHeld(1, 1, 1)
	must(t, b.stop())
	b.start() // without a keeper the commands begin again
	b.awaitStep(first, "three", steps.Running)
	b.awaitStep(second, "two", steps.Running)
	b.awaitHeld(1, 1, 1)
	for _, id := range []statefs.ID{first, second} {
		b.artifact(id, "two")
		b.artifact(id, "three")
		if rec := b.awaitEnd(id); rec.Result != statefs.Success {
			t.Errorf("%s %+v", rec.Result, rec.Error)
		}
	}
	b.awaitHeld(0, 0, 0)
}

// Optional steps hold lanes and limits of their own. A trailing operation holds none that its steps
// do not need, and none is leaked.
func TestOptionalStepsTakePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := placed(t)
	first, second := b.submit("aside", `{}`), b.submit("aside", `{}`)
	b.awaitState(first, statefs.Trailing)
	b.awaitState(second, statefs.Trailing)
	b.poll("two of the four steps are at work", func() bool {
		_, n, l := b.held()
		return n == 1 && l == 1
	})
	owner := map[string]statefs.ID{}
	for _, name := range []string{"one", "two"} {
		for _, id := range []statefs.ID{first, second} {
			rec, err := b.tree.ReadRecord(id)
			must(t, err)
			if step(t, rec, name).Status == steps.Running {
				owner[name] = id
			}
		}
	}
	if len(owner) != 2 {
		t.Fatalf("at work %v", owner)
	}
	other := map[statefs.ID]statefs.ID{first: second, second: first}
	b.artifact(owner["one"], "one")
	b.awaitStep(other[owner["one"]], "one", steps.Running)
	b.touch(owner["two"], statefs.Cancel)
	b.touch(other[owner["two"]], statefs.Cancel)
	b.awaitEnd(first)
	b.awaitEnd(second)
	b.awaitHeld(0, 0, 0)
}
