package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/breaker"
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// put writes a file of lanes/ as an editor or a shell does, in place.
func (b *bench) put(name, text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.tree.LanesDir(), name), []byte(text), 0o640))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	must(b.t, os.Remove(filepath.Join(b.tree.LanesDir(), name)))
}

// lane returns how a lane stands.
func (b *bench) lane(name string) statefs.LaneStatus {
	b.t.Helper()
	all := b.daemon.LanesStatus()
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
	b.awaitLane("one", "says why", func(v statefs.LaneStatus) bool { return v.Paused != nil && v.Paused.Reason == "new cookies" })
	must(t, b.stop())
	b.start()
	b.awaitWaiting(held, statefs.WaitsPausedLane) // a restart changes nothing
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
	b.poll("all are paused", func() bool { return b.daemon.LanesStatus().Paused != nil && b.lane("one").Paused != nil })
	one, two := b.submit("one", `{}`), b.submit("two", `{}`)
	b.awaitWaiting(one, statefs.WaitsPausedLane)
	b.awaitWaiting(two, statefs.WaitsPausedLane)
	b.remove("all.paused")
	b.awaitState(two, statefs.Running)
	b.awaitWaiting(one, statefs.WaitsPausedLane) // by itself
	b.remove("one.paused")
	b.awaitState(one, statefs.Running)
	b.cancel(one)
	b.cancel(two)
}

func TestLaneGetsACapacityByFile(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first, second, third := b.submit("one", `{}`), b.submit("one", `{}`), b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	b.awaitWaiting(second, statefs.WaitsForLane)
	b.put("one.capacity", "2\n")
	b.awaitState(second, statefs.Running)
	b.awaitWaiting(third, statefs.WaitsForLane)
	for _, bad := range []string{"-1\n", "many\n", "many"} {
		b.put("one.capacity", bad)
		b.awaitLane("one", "reports "+bad, func(v statefs.LaneStatus) bool {
			return len(v.Problems) == 1 && v.Problems[0].File == "lanes/one.capacity" && strings.Contains(v.Problems[0].Reason, fmt.Sprintf("capacity %q is neither", strings.TrimSpace(bad)))
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
	must(t, b.tree.HoldLane(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}, statefs.LaneHold{Until: &until}))
	must(t, b.tree.HoldLane(statefs.LaneFile{Lane: "all", Control: statefs.LaneClosed}, statefs.LaneHold{Until: &until}))
	b.daemon.LookAtLanes()
	if b.lane("one").Paused == nil && time.Now().Before(until) {
		t.Error("a look does not see a file that was there before it")
	}
	id := b.submit("one", `{}`)
	b.awaitState(id, statefs.Running)
	b.poll("lanes/ is empty", func() bool {
		files, _, err := b.tree.LaneFiles()
		return err == nil && len(files) == 0
	})
	b.cancel(id)
	// What was over before the daemon began goes too, and a clock that is set ahead is noticed.
	must(t, b.stop())
	hour := time.Now().Add(time.Hour)
	must(t, b.tree.HoldLane(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}, statefs.LaneHold{Until: &until}))
	must(t, b.tree.HoldLane(statefs.LaneFile{Lane: "two", Control: statefs.LanePaused}, statefs.LaneHold{Until: &hour}))
	b.start()
	one, two := b.submit("one", `{}`), b.submit("two", `{}`)
	b.awaitState(one, statefs.Running)
	b.awaitWaiting(two, statefs.WaitsPausedLane)
	b.jump.Store(int64(2 * time.Hour))
	b.daemon.LookAtLanes()
	b.awaitState(two, statefs.Running)
	b.cancel(one)
	b.cancel(two)
}

// Half a file that is being written neither counts nor is it reported, until it has been left alone for a while.
func TestLaneFileIsReadWhenItIsQuiet(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	owner, err := statefs.Own(b.tree)
	must(t, err)
	defer func() { must(t, owner.Release()) }()
	var ran time.Duration
	config := Config{Owner: owner, Logger: slog.New(slog.DiscardHandler), Lanes: map[string]LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}}
	l := newLanes(&config, newAdmission(&config, func(statefs.ID) {}, time.Now), func() time.Duration { return ran })
	capacity, paused := l.all["one"].files[statefs.LaneCapacity], l.all["one"].files[statefs.LanePaused]

	b.put("one.capacity", "1")
	l.look()
	if capacity.there {
		t.Error("1 counts, and it may become 16")
	}
	ran += quiet / 2
	b.put("one.capacity", "16")
	l.look()
	ran += quiet / 2
	l.look()
	if capacity.there {
		t.Error("16 counts, and it was written just now")
	}
	ran += quiet / 2
	l.look()
	if !capacity.there || capacity.value.Capacity != 16 || capacity.bad != "" {
		t.Errorf("%+v", capacity)
	}
	b.put("one.capacity", "ma")
	l.look()
	if capacity.bad != "" {
		t.Error("half a word is reported")
	}
	ran += quiet
	l.look()
	if capacity.bad == "" || capacity.value.Capacity != 16 {
		t.Errorf("%+v", capacity)
	}

	b.put("one.paused", `{"until": "2999-01-01T00:0`)
	l.look()
	if !paused.there || paused.bad != "" || !l.all["one"].said.set.Paused {
		t.Errorf("a pause counts at once: %+v", paused)
	}
	b.put("one.paused", `{"until": "2999-01-01T00:00:00Z"}`)
	ran += quiet
	l.look() // which sees that it was changed
	ran += quiet
	l.look()
	if paused.bad != "" || paused.value.Hold.Until == nil {
		t.Errorf("%+v", paused)
	}
	// What counts is over, and what is there now means nothing: the lane stays paused.
	b.put("one.paused", "{\n")
	ran += quiet
	l.look()
	ran += quiet
	l.look()
	if paused.bad == "" || paused.value.Hold.Until == nil {
		t.Errorf("%+v", paused)
	}
	past := time.Now().Add(-time.Hour)
	paused.value.Hold.Until = &past
	l.look()
	if !paused.there || paused.value.Hold.Until != nil {
		t.Errorf("%+v", paused)
	}
}

func TestFilesThatControlNoLane(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("nowhere.paused", "")
	b.put("one.pausd", "")
	must(t, os.Symlink("/etc/hostname", filepath.Join(b.tree.LanesDir(), "one.paused")))
	b.poll("they are reported", func() bool { return len(b.daemon.LanesStatus().Problems) == 2 && len(b.lane("one").Problems) == 1 })
	for i, want := range []statefs.LaneProblem{
		{File: "lanes/nowhere.paused", Reason: `there is no lane "nowhere"; the lanes are default, hourly, one, rated, two`},
		{File: "lanes/one.pausd", Reason: "its name controls nothing: it is LANE.paused, LANE.closed or LANE.capacity"},
	} {
		if got := b.daemon.LanesStatus().Problems[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	id := b.submit("one", `{}`)
	b.awaitState(id, statefs.Running) // a link pauses nothing
	b.cancel(id)
}

// A folder that is removed takes its pauses with it, and what comes in its place counts again.
func TestLanesFolderIsReplaced(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.put("one.paused", "")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil })
	must(t, os.RemoveAll(b.tree.LanesDir()))
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool { return v.Paused == nil })
	b.put("one.closed", "")
	b.awaitLane("one", "is closed", func(v statefs.LaneStatus) bool { return v.Closed != nil })
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]LaneConfig{"one": {}}
	b.config.Limits = map[string]int{"tool": 1}
	b.config.MaxQueued = 2
	b.start()
	admit := func(lanes ...string) error {
		var all []statefs.Submission
		for _, lane := range lanes {
			all = append(all, statefs.Submission{Group: "test", Job: "one", Lane: lane})
		}
		return b.daemon.Admit(all)
	}
	refusesOption := func(err error, option, want string) {
		t.Helper()
		if wrong, ok := errors.AsType[*submit.OptionError](err); !ok || wrong.Option != option || wrong.Reason != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refusesOption(admit("one", "nowhere"), "lane", "job test/one names the lane 'nowhere', which the daemon does not have; it has default, one")
	refusesOption(admit("all"), "lane", "job test/one names the lane 'all', which the daemon does not have; it has default, one")
	refusesOption(b.daemon.Admit([]statefs.Submission{{Group: "test", Job: "one", Limits: []string{"tool", "disk"}}}),
		"limits", "job test/one names the limit 'disk', which the daemon does not have; it has tool")
	busy := func(err error, text string, full bool, after time.Duration) {
		t.Helper()
		if refused, ok := errors.AsType[*submit.BusyError](err); !ok || !strings.HasPrefix(refused.Text, text) || refused.Full != full || refused.After > after || refused.After <= 0 {
			t.Errorf("%#v, want %s", err, text)
		}
	}
	busy(admit("one", "one", "one"), "The queue is full: 0 operations wait, and max_queued is 2", true, whenFull)
	b.awaitWaiting(b.submit("one", `{}`), statefs.WaitsForLane)
	busy(admit("one", "one"), "The queue is full: 1 operations wait, and max_queued is 2; these would be 2 more", true, whenFull)
	until := time.Now().Add(time.Hour)
	must(t, b.tree.HoldLane(statefs.LaneFile{Lane: "one", Control: statefs.LaneClosed}, statefs.LaneHold{Until: &until, Reason: "inventory"}))
	b.daemon.LookAtLanes()
	busy(admit("default", "one"), "Lane 'one' is closed until "+until.Local().Format(time.RFC3339)+": inventory", false, time.Hour)
	must(t, admit("default")) // which takes the last place
	b.put("all.closed", "")
	b.daemon.LookAtLanes()
	busy(admit("default"), "All lanes are closed", false, whenClosed)
}

// However many come at once, as many are taken as there is room for, and one more when one of them goes.
func TestRoomWhenManyComeAtOnce(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]LaneConfig{"one": {}}
	b.config.MaxQueued = 10
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree, Admit: func(all []statefs.Submission) error { return b.daemon.Admit(all) }})
	b.start()
	def := b.catalog.Get("test", "one")
	params, err := def.BindJSON([]byte(`{}`))
	must(t, err)
	submitOne := func() (statefs.ID, error) {
		out, err := b.config.Intake.Submit(t.Context(), submit.Request{Definition: def, Params: params, Fresh: true})
		if err != nil {
			return statefs.ID{}, err
		}
		return out[0].Record.ID, nil
	}
	var all sync.WaitGroup
	var taken, refused atomic.Int32
	for range 100 {
		all.Go(func() {
			_, err := submitOne()
			switch busy, ok := errors.AsType[*submit.BusyError](err); {
			case err == nil:
				taken.Add(1)
			case ok && busy.Full:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 10 || refused.Load() != 90 {
		t.Fatalf("%d taken, %d refused", taken.Load(), refused.Load())
	}
	listing, err := b.tree.List()
	must(t, err)
	b.cancel(listing.Markers[0].ID)
	b.poll("there is room for one", func() bool { _, err := submitOne(); return err == nil })
	if _, err := submitOne(); err == nil {
		t.Error("there is room for a second one")
	}
}

// What was let in and never came gives its place back after a while.
func TestRoomOfWhatNeverCame(t *testing.T) {
	t.Parallel()
	seen := 1
	r := room{waiting: func() int { return seen }}
	takes := func(n, most int, ran time.Duration, wantWaiting int, want bool) {
		t.Helper()
		if waiting, ok := r.take(n, most, ran); waiting != wantWaiting || ok != want {
			t.Errorf("%d of %d after %s: %d wait, let in: %t", n, most, ran, waiting, ok)
		}
	}
	takes(2, 4, 0, 3, true)
	takes(2, 4, time.Second, 3, false)
	takes(1, 4, time.Second, 4, true)
	takes(1, 4, time.Second, 4, false)
	r.came(true, func() { seen++ }) // one of the first two
	takes(1, 4, time.Second, 4, false)
	takes(1, 4, lostAfter, 4, true) // the other one of them is lost
	takes(1, 4, lostAfter, 4, false)
	r.came(false, func() { seen++ }) // of somebody who asked nobody
	takes(0, 0, lostAfter, 5, true)
}

const breakerJobs = `
group: test
name: job
params: {how: {type: string, default: fail}}
lane: one
handler: how
---
group: test
name: exits
params: {code: {type: integer, required: true}}
lane: one
exit_codes: {manual: [77], warn: [3]}
run: [sh, -c, 'exit ${params.code}']
---
group: test
name: asks
lane: turns
handler: env
---
group: test
name: turns
lane: turns
env: {OWN: "of the job"}
run: [sh, -c, 'echo "$AGENT $PROFILE $OWN"']
`

// howHandlers fail, wait or go well, as the parameter says; told lets some of them end.
func howHandlers(told ...<-chan struct{}) Handlers {
	return Handlers{"how": {Run: func(ctx context.Context, op *Op) error {
		switch how := op.Params().Get("how"); how {
		case "fail":
			return errors.New("as it was told")
		case "wait":
			<-ctx.Done()
			return ctx.Err()
		case "failwhentold":
			<-told[0]
			return errors.New("as it was told")
		}
		return nil
	}}, "env": {Run: func(_ context.Context, op *Op) error {
		op.Logf("%s", strings.Join(op.LaneEnv(), " "))
		return nil
	}}}
}

func breakerBench(t *testing.T, handlers Handlers, on ...string) *bench {
	t.Helper()
	b := prepare(t, breakerJobs, handlers)
	b.config.Lanes = map[string]LaneConfig{
		"one": {Lane: queue.Lane{Capacity: 2}, Breaker: &BreakerConfig{Failures: 2, Within: time.Hour, Cooldown: 150 * time.Millisecond, On: on}},
		"turns": {
			Lane: queue.Lane{Capacity: 1}, Env: []string{"PROFILE=desktop", "OWN=of the lane", "AGENT=none"},
			Rotate: map[string][]string{"AGENT": {"a", "b", "c"}},
		},
	}
	b.start()
	return b
}

func (b *bench) how(what string) statefs.ID { return b.submit("job", fmt.Sprintf(`{"how": %q}`, what)) }

func TestBreakerPausesTheLaneAndTriesOne(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers())
	b.awaitEnd(b.how("fail"))
	b.awaitEnd(b.how("well")) // which resets nothing
	slow := b.how("wait")
	b.awaitState(slow, statefs.Running)
	b.awaitEnd(b.how("fail"))
	v, err := b.tree.ReadLane(pausedFile("one"))
	if err != nil || v.Hold.By != statefs.HeldByBreaker || v.Hold.Until == nil || !strings.HasPrefix(v.Hold.Reason, "2 failures within 1h; the last one: handler_failed in test-job_") {
		t.Fatalf("%+v %v", v, err)
	}
	// The one that is tried fails: the lane is paused again. All others wait.
	third, fourth, fifth := b.how("fail"), b.how("wait"), b.how("wait")
	b.awaitEnd(third)
	b.awaitLane("one", "tries the fourth", func(v statefs.LaneStatus) bool {
		return v.Breaker.State == string(breaker.Trial) && v.Breaker.Trial == fourth
	})
	b.awaitState(fourth, statefs.Running)
	b.awaitWaiting(fifth, statefs.WaitsPausedLane)
	b.cancel(slow)                                 // it ran when the breaker opened, and has nothing to say
	b.awaitWaiting(fifth, statefs.WaitsPausedLane) // although there is room
	b.cancel(fourth)                               // which says nothing: the fifth is tried
	b.awaitLane("one", "tries the fifth", func(v statefs.LaneStatus) bool { return v.Breaker.Trial == fifth })
	sixth := b.how("well")
	b.awaitWaiting(sixth, statefs.WaitsPausedLane)
	b.cancel(fifth)
	b.awaitEnd(sixth) // which went well
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool { return v.Breaker.State == string(breaker.Closed) && v.Paused == nil })
	if files, _, err := b.tree.LaneFiles(); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
}

func TestBreakerOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers())
	one := b.config.Lanes["one"]
	hour := *one.Breaker
	hour.Cooldown = time.Hour
	must(t, b.stop())
	b.config.Lanes["one"] = LaneConfig{Lane: one.Lane, Breaker: &hour}
	b.start()
	b.awaitEnd(b.how("fail"))
	b.awaitEnd(b.how("fail"))
	held := b.how("wait")
	b.awaitWaiting(held, statefs.WaitsPausedLane)
	must(t, b.stop())
	b.start()
	b.awaitWaiting(held, statefs.WaitsPausedLane)
	if v := b.lane("one"); v.Breaker.State != string(breaker.Open) || v.Paused == nil || v.Paused.By != statefs.HeldByBreaker {
		t.Errorf("%+v", v)
	}
	b.jump.Store(int64(2 * time.Hour)) // the cooldown is over
	b.daemon.LookAtLanes()
	b.awaitState(held, statefs.Running)
	next := b.how("wait")
	b.awaitWaiting(next, statefs.WaitsPausedLane)
	b.awaitLane("one", "has written who is tried", func(statefs.LaneStatus) bool {
		v, err := b.tree.ReadLane(pausedFile("one"))
		return err == nil && v.Hold.Trial == held
	})
	must(t, b.stop()) // which interrupts it: it waits again, and nobody is tried any more
	b.start()
	tried, other := held, next
	b.await("one of the two is tried", func() bool {
		if b.exists(statefs.MarkerName(next, statefs.Running)) {
			tried, other = next, held
		}
		return b.exists(statefs.MarkerName(tried, statefs.Running))
	})
	b.awaitWaiting(other, statefs.WaitsPausedLane)
	b.awaitLane("one", "has written who is tried", func(statefs.LaneStatus) bool {
		v, err := b.tree.ReadLane(pausedFile("one"))
		return err == nil && v.Hold.Trial == tried
	})
	b.remove("one.paused") // a person knows better
	b.awaitState(other, statefs.Running)
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool { return v.Breaker.State == string(breaker.Closed) })
	b.cancel(held)
	b.cancel(next)
}

// A failure is named by its error code, its class, or the exit code of its command; a warning is none, and neither is a trial that ends in one.
func TestNamesOfAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on     []string
		code   int
		counts bool
	}{
		"any": {nil, 7, true}, "exit code": {[]string{"7"}, 7, true}, "another exit code": {[]string{"8"}, 7, false},
		"error code": {[]string{"exit_code"}, 7, true}, "class": {[]string{"manual"}, 77, true}, "another class": {[]string{"manual"}, 7, false},
		"a warning": {nil, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := breakerBench(t, howHandlers(), c.on...)
			id := b.submit("exits", fmt.Sprintf(`{"code": %d}`, c.code))
			b.poll("it has failed", func() bool {
				rec, err := b.tree.ReadRecord(id)
				return err == nil && rec.Error != nil && rec.Status != statefs.Running
			})
			counted := 0
			if c.counts {
				counted = 1
			}
			if v := b.lane("one"); v.Breaker.Failures != counted {
				t.Errorf("%d failures count, want %d", v.Breaker.Failures, counted)
			}
			if sight, err := b.tree.Look(id); err == nil && len(sight.States) > 0 {
				b.cancel(id)
			}
		})
	}
}

func TestBreakerCountsWhatItNames(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers(), "auth")
	for range 3 {
		b.awaitEnd(b.how("fail"))
	}
	if v := b.lane("one"); v.Paused != nil || v.Breaker.Failures != 0 {
		t.Errorf("%+v", v)
	}
	b.put("one.paused", "by hand\n")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil && v.Paused.Reason == "by hand" })
}

// A pause by hand is stronger than the breaker: what fails meanwhile puts no end to it.
func TestBreakerLeavesAPauseByHandAlone(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	b := breakerBench(t, howHandlers(told))
	first, second := b.how("failwhentold"), b.how("failwhentold")
	b.awaitState(first, statefs.Running)
	b.awaitState(second, statefs.Running)
	b.put("one.paused", "by hand\n")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil && v.Paused.Reason == "by hand" })
	close(told)
	b.awaitEnd(first)
	b.awaitEnd(second)
	b.daemon.LookAtLanes()
	if v := b.lane("one"); v.Paused == nil || v.Paused.Reason != "by hand" || v.Breaker.State != string(breaker.Closed) {
		t.Errorf("%+v", v)
	}
	b.remove("one.paused")
	b.awaitEnd(b.how("well"))
}

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

func TestChangesOfALaneAreTold(t *testing.T) {
	t.Parallel()
	b := prepare(t, breakerJobs, howHandlers())
	b.config.Lanes = map[string]LaneConfig{"turns": {}, "one": {Lane: queue.Lane{Capacity: 1}, Breaker: &BreakerConfig{Failures: 1, Within: time.Hour, Cooldown: time.Millisecond}}}
	b.tellEvents()
	b.put("one.closed", "") // before the daemon begins: no news
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.LaneChanged}}, 0)
	defer r.Close()
	b.remove("one.closed")
	b.toldOf(r, "lane one opened ")
	must(t, b.tree.HoldLane(pausedFile("one"), statefs.LaneHold{Reason: "tea"}))
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
