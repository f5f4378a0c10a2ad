package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

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

// howHandlers fail, wait or succeed, depending on the parameter; told makes "failwhentold" end.
func howHandlers(told ...<-chan struct{}) work.Handlers {
	return work.Handlers{"how": {Run: func(ctx context.Context, op *work.Op) error {
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
	}}, "env": {Run: func(_ context.Context, op *work.Op) error {
		op.Logf("%s", strings.Join(op.LaneEnv(), " "))
		return nil
	}}}
}

func breakerBench(t *testing.T, handlers work.Handlers, on ...string) *bench {
	t.Helper()
	b := prepare(t, breakerJobs, handlers)
	b.config.Lanes = map[string]lanes.LaneConfig{
		"one": {Lane: queue.Lane{Capacity: 2}, Breaker: &breaker.Settings{
			Failures: 2, Within: time.Hour,
			Cooldown: 150 * time.Millisecond, Codes: on,
		}},
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
	b.awaitEnd(b.how("well")) // resets nothing
	slow := b.how("wait")
	b.awaitState(slow, statefs.Running)
	b.awaitEnd(b.how("fail"))
	v, err := b.tree.Lanes.Read(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused})
	if err != nil || v.Hold.By != statefs.HeldByBreaker || v.Hold.Until == nil ||
		!strings.HasPrefix(v.Hold.Reason, "2 failures within 1h; the last one: handler_failed in test-job_") {
		t.Fatalf("%+v %v", v, err)
	}
	// The trial fails, so the lane is paused again. All others wait.
	third, fourth, fifth := b.how("fail"), b.how("wait"), b.how("wait")
	b.awaitEnd(third)
	b.awaitLane("one", "tries the fourth", func(v statefs.LaneStatus) bool {
		return v.Breaker.State == string(breaker.Trial) && v.Breaker.Trial == fourth
	})
	b.awaitState(fourth, statefs.Running)
	b.awaitWaiting(fifth, statefs.WaitsPausedLane)
	b.cancel(slow)                                 // it ran when the breaker opened: no verdict
	b.awaitWaiting(fifth, statefs.WaitsPausedLane) // although a slot is free
	b.cancel(fourth)                               // no verdict: the fifth becomes the trial
	b.awaitLane("one", "tries the fifth", func(v statefs.LaneStatus) bool { return v.Breaker.Trial == fifth })
	sixth := b.how("well")
	b.awaitWaiting(sixth, statefs.WaitsPausedLane)
	b.cancel(fifth)
	b.awaitEnd(sixth) // it succeeded
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool {
		return v.Breaker.State == string(breaker.Closed) &&
			v.Paused == nil
	})
	if files, _, err := b.tree.Lanes.List(); err != nil || len(files) > 0 {
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
	b.config.Lanes["one"] = lanes.LaneConfig{Lane: one.Lane, Breaker: &hour}
	b.start()
	b.awaitEnd(b.how("fail"))
	b.awaitEnd(b.how("fail"))
	held := b.how("wait")
	b.awaitWaiting(held, statefs.WaitsPausedLane)
	must(t, b.stop())
	b.start()
	b.awaitWaiting(held, statefs.WaitsPausedLane)
	if v := b.lane("one"); v.Breaker.State != string(breaker.Open) || v.Paused == nil ||
		v.Paused.By != statefs.HeldByBreaker {
		t.Errorf("%+v", v)
	}
	b.jump.Store(int64(2 * time.Hour)) // the cooldown is over
	b.daemon.Lanes.Apply()
	b.awaitState(held, statefs.Running)
	next := b.how("wait")
	b.awaitWaiting(next, statefs.WaitsPausedLane)
	b.awaitLane("one", "has written who is tried", func(statefs.LaneStatus) bool {
		v, err := b.tree.Lanes.Read(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused})
		return err == nil && v.Hold.Trial == held
	})
	must(t, b.stop()) // interrupts the trial: it waits again, and there is no trial
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
		v, err := b.tree.Lanes.Read(statefs.LaneFile{Lane: "one", Control: statefs.LanePaused})
		return err == nil && v.Hold.Trial == tried
	})
	b.remove("one.paused") // a person overrides the breaker
	b.awaitState(other, statefs.Running)
	b.awaitLane("one", "goes on", func(v statefs.LaneStatus) bool { return v.Breaker.State == string(breaker.Closed) })
	b.cancel(held)
	b.cancel(next)
}

// A failure is named by its error code, its class, or the exit code of its command. A warning is no
// failure, and neither is a trial that ends in one.
func TestBreakerMatchesFailureNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on     []string
		code   int
		counts bool
	}{
		"any": {nil, 7, true}, "exit code": {[]string{"7"}, 7, true}, "another exit code": {[]string{"8"}, 7, false},
		"error code": {[]string{"exit_code"}, 7, true}, "class": {[]string{"manual"}, 77, true},
		"another class": {[]string{"manual"}, 7, false},
		"a warning":     {nil, 3, false},
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
			if sight, err := b.tree.ObserveAll(id); err == nil && len(sight.States) > 0 {
				b.cancel(id)
			}
		})
	}
}

// TestBreakerSaysTheExitCode: the reason of the pause contains the exit code of the last failure.
func TestBreakerSaysTheExitCode(t *testing.T) {
	t.Parallel()
	b := breakerBench(t, howHandlers())
	var last statefs.ID
	for _, code := range []int{7, 9} {
		last = b.submit("exits", fmt.Sprintf(`{"code": %d}`, code))
		b.awaitEnd(last)
	}
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool { return v.Paused != nil })
	if want := "2 failures within 1h; the last one: exit_code (exit code 9) in " +
		last.String(); b.lane("one").Paused.Reason != want {
		t.Errorf("%q, want %q", b.lane("one").Paused.Reason, want)
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
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool {
		return v.Paused != nil &&
			v.Paused.Reason == "by hand"
	})
}

// A pause by a person overrides the breaker: failures during it do not end it.
func TestBreakerLeavesAPauseByHandAlone(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	b := breakerBench(t, howHandlers(told))
	first, second := b.how("failwhentold"), b.how("failwhentold")
	b.awaitState(first, statefs.Running)
	b.awaitState(second, statefs.Running)
	b.put("one.paused", "by hand\n")
	b.awaitLane("one", "is paused", func(v statefs.LaneStatus) bool {
		return v.Paused != nil &&
			v.Paused.Reason == "by hand"
	})
	close(told)
	b.awaitEnd(first)
	b.awaitEnd(second)
	b.daemon.Lanes.Apply()
	if v := b.lane("one"); v.Paused == nil || v.Paused.Reason != "by hand" || v.Breaker.State != string(breaker.Closed) {
		t.Errorf("%+v", v)
	}
	b.remove("one.paused")
	b.awaitEnd(b.how("well"))
}
