package alarm

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
		a := New(time.Now, func() time.Duration { return time.Since(began) }, func(key string) {
			rung.note(fmt.Sprintf("%s at %s", key, time.Since(began)))
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.Serve(ctx, nil); close(done) }()
		a.Set("noon", began.Add(12*time.Hour), 0)
		a.Set("late", began.Add(23*time.Hour), 0)
		a.Set("wait", time.Time{}, 5*time.Minute)
		a.Set("replaced", began.Add(time.Hour), 0)
		a.Set("replaced", began.Add(2*time.Hour), 0)
		a.Set("taken back", began.Add(time.Hour), time.Hour)
		a.Set("taken back", time.Time{}, 0)
		a.Set("either", began.Add(20*time.Hour), 3*time.Hour)
		a.Set("past", began.Add(-time.Hour), 0)
		<-time.After(24 * time.Hour)
		synctest.Wait()
		cancel()
		<-done
		rung.want(t, "after a day", "past at 0s", "wait at 5m0s", "replaced at 2h0m0s", "either at 3h0m0s",
			"noon at 12h0m0s", "late at 23h0m0s")
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
		a := New(func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
			func() time.Duration { return time.Since(began) }, func(key string) {
				rung.note(key)
			})
		set := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.Serve(ctx, set); close(done) }()
		a.Set("clock", began.Add(12*time.Hour), 0)
		a.Set("run", time.Time{}, 12*time.Hour)
		a.Set("later", began.Add(36*time.Hour), 0)
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
		a := New(func() time.Time { return clock }, func() time.Duration { return ran }, func(int) {})
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
				a.Set(key, at, after)
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

// Without a clock watch, only the next sweep notices that the clock was set.
func TestWatchOfTheClock(t *testing.T) {
	t.Parallel()
	w, err := openClockWatch()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	select {
	case <-w.set:
		t.Error("the clock was set")
	case <-done:
		t.Error("the watch ended by itself")
	default:
	}
	cancel()
	<-done
}
