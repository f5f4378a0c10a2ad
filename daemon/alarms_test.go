package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/schedule"
)

// rung collects the expired alarms, in order.
type rung struct {
	mu   sync.Mutex
	list []string
}

func (r *rung) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, text)
}

func (r *rung) want(t *testing.T, when string, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.list, want) {
		t.Errorf("%s: %q\nwant %q", when, r.list, want)
	}
}

// Alarms expire at their deadlines, in order and once. Replaced and removed alarms do not expire.
func TestAlarmsOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var rung rung
		a := newAlarms(time.Now, func() time.Duration { return time.Since(began) }, func(key string) {
			rung.note(fmt.Sprintf("%s at %s", key, time.Since(began)))
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.serve(ctx, nil); close(done) }()
		a.set("noon", began.Add(12*time.Hour), 0)
		a.set("late", began.Add(23*time.Hour), 0)
		a.set("wait", time.Time{}, 5*time.Minute)
		a.set("replaced", began.Add(time.Hour), 0)
		a.set("replaced", began.Add(2*time.Hour), 0)
		a.set("taken back", began.Add(time.Hour), time.Hour)
		a.set("taken back", time.Time{}, 0)
		a.set("either", began.Add(20*time.Hour), 3*time.Hour)
		a.set("past", began.Add(-time.Hour), 0)
		<-time.After(24 * time.Hour)
		synctest.Wait()
		cancel()
		<-done
		rung.want(t, "after a day", "past at 0s", "wait at 5m0s", "replaced at 2h0m0s", "either at 3h0m0s",
			"noon at 12h0m0s", "late at 23h0m0s")
	})
}

// A job that fails every time for a day, with waits that grow to an hour: each attempt starts when
// its wait is over, to the nanosecond, and the day needs as many reconciles as attempts.
func TestBackoffOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := catalog.Retry{Initial: time.Minute, Factor: 2, Cap: time.Hour}
		var attempts []time.Duration
		var a *alarms[string]
		a = newAlarms(time.Now, func() time.Duration { return time.Since(began) }, func(key string) {
			attempts = append(attempts, time.Since(began))
			a.set(key, time.Now().Add(backoff(r, len(attempts), 0)), 0)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.serve(ctx, nil); close(done) }()
		a.set("job", began, 0)
		<-time.After(24*time.Hour - 1)
		synctest.Wait()
		cancel()
		<-done
		minutes := []int{0, 1, 3, 7, 15, 31, 63} // then one each hour
		for len(minutes) < 7+22 {
			minutes = append(minutes, minutes[len(minutes)-1]+60)
		}
		var want []time.Duration
		for _, m := range minutes {
			want = append(want, time.Duration(m)*time.Minute)
		}
		if !slices.Equal(attempts, want) {
			t.Errorf("attempts at %v\nwant %v", attempts, want)
		}
	})
}

// When the clock is set ahead, deadlines of the machine's clock expire as soon as the clock watch
// reports it; deadlines of the daemon's running time do not. When it is set back, it is trusted
// again.
func TestAlarmsWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var jump atomic.Int64
		var rung rung
		a := newAlarms(func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
			func() time.Duration { return time.Since(began) }, func(key string) {
				rung.note(key)
			})
		set := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.serve(ctx, set); close(done) }()
		a.set("clock", began.Add(12*time.Hour), 0)
		a.set("run", time.Time{}, 12*time.Hour)
		a.set("later", began.Add(36*time.Hour), 0)
		synctest.Wait()
		jump.Store(int64(13 * time.Hour))
		set <- struct{}{}
		synctest.Wait()
		rung.want(t, "after the clock was set ahead", "clock")
		jump.Store(int64(-time.Hour))
		set <- struct{}{}
		<-time.After(36 * time.Hour)
		synctest.Wait()
		rung.want(t, "while the clock is an hour behind", "clock", "run")
		<-time.After(time.Hour)
		synctest.Wait()
		cancel()
		<-done
		rung.want(t, "in the end", "clock", "run", "later")
	})
}

// Compared with a plain list: takeExpired always returns exactly the keys that are due by either
// clock, and the wait ends at the next deadline.
func TestAlarmsAgainstAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock, ran := time.Unix(1_000_000, 0), time.Duration(1)
		a := newAlarms(func() time.Time { return clock }, func() time.Duration { return ran }, func(int) {})
		type times struct{ clock, ran int64 }
		list := make(map[int]times)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0, 1:
				key := rapid.IntRange(0, 9).Draw(t, "key")
				want := times{never, never}
				var at time.Time
				var after time.Duration
				if rapid.Bool().Draw(t, "by the clock") {
					at = clock.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "at")))
					want.clock = at.UnixNano()
				}
				if rapid.Bool().Draw(t, "by the run") {
					after = ran + time.Duration(rapid.IntRange(0, 20).Draw(t, "after"))
					want.ran = int64(after)
				}
				a.set(key, at, after)
				list[key] = want
			default:
				clock = clock.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "clock")))
				ran += time.Duration(rapid.IntRange(0, 10).Draw(t, "ran"))
			}
			var want []int
			next := int64(never)
			for key, at := range list {
				if at.clock <= clock.UnixNano() || at.ran <= int64(ran) {
					want = append(want, key)
					delete(list, key)
				}
			}
			for _, at := range list {
				if at.clock != never {
					next = min(next, at.clock-clock.UnixNano())
				}
				if at.ran != never {
					next = min(next, at.ran-int64(ran))
				}
			}
			got, wait := a.takeExpired()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || int64(wait) != next {
				t.Fatalf("due are %v in %d, want %v in %d", got, wait, want, next)
			}
		}
	})
}

// Three schedules on one timer for a day, with an hour without a daemon in the middle: each slot
// fires once, at its time, and missed slots fire as the job defines.
func TestSchedulesOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		type job struct {
			spec    *schedule.Spec
			missed  schedule.Missed
			handled schedule.Handled
			fired   []time.Time
			late    int
		}
		jobs := map[string]*job{}
		for name, c := range map[string]struct {
			line   string
			missed schedule.Missed
		}{
			"quarters": {"*/15 * * * *", schedule.MissedOnce}, "hours": {"0 * * * *", schedule.MissedAll},
			"nights": {"30 2 * * *", schedule.MissedSkip},
		} {
			spec, err := schedule.Parse(c.line, "")
			must(t, err)
			jobs[name] = &job{spec: spec, missed: c.missed, handled: schedule.Begin(began)}
		}
		run := func(until time.Duration) {
			var a *alarms[string]
			a = newAlarms(time.Now, func() time.Duration { return time.Since(began) }, func(name string) {
				j, now := jobs[name], time.Now()
				var due []time.Time
				due, j.handled = j.handled.Due(j.spec, now, j.missed)
				for _, slot := range due {
					if !now.Equal(slot) {
						j.late++
					}
				}
				j.fired = append(j.fired, due...)
				a.set(name, j.handled.Next(j.spec, now), 0)
			})
			for name := range jobs {
				a.set(name, time.Now(), 0) // a start enqueues all of them
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { a.serve(ctx, nil); close(done) }()
			<-time.After(time.Until(began.Add(until)))
			synctest.Wait()
			cancel()
			<-done
		}
		run(10*time.Hour + time.Minute)
		<-time.After(70 * time.Minute)
		run(24*time.Hour + time.Second)
		for name, want := range map[string]struct{ count, late int }{
			"quarters": {96 - 3, 1},
			"hours":    {24, 1}, "nights": {1, 0},
		} {
			j := jobs[name]
			if len(j.fired) != want.count || j.late != want.late || !slices.IsSortedFunc(j.fired, time.Time.Compare) ||
				len(slices.Compact(j.fired)) != want.count {
				t.Errorf("%s: fired %d times, %d late; want %d, %d", name, len(j.fired), j.late, want.count, want.late)
			}
		}
	})
}
