package counts

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// Whatever operations do, the counts are those of a list of them.
func TestCountsAreThoseOfAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var counters Counters
		type operation struct {
			lane  string
			state statefs.State
		}
		var live []operation
		states := slices.DeleteFunc(slices.Clone(statefs.States()), statefs.State.Terminal)
		for range rapid.IntRange(0, 60).Draw(t, "moves") {
			state := rapid.SampledFrom(states).Draw(t, "state")
			if len(live) == 0 || rapid.Bool().Draw(t, "new") {
				op := operation{rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "lane"), state}
				counters.Move(Place{}, Place{Lane: op.lane, State: op.state})
				live = append(live, op)
				continue
			}
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			if rapid.Bool().Draw(t, "ends") {
				counters.Move(Place{Lane: live[i].lane, State: live[i].state}, Place{})
				live = slices.Delete(live, i, i+1)
				continue
			}
			counters.Move(Place{Lane: live[i].lane, State: live[i].state}, Place{Lane: live[i].lane, State: state})
			live[i].state = state
		}
		lanes, all := counters.Lanes(noon)
		for _, l := range append(lanes, all) {
			want := map[statefs.State]int{}
			for _, op := range live {
				if l.Name == "" || l.Name == op.lane || l.Name == statefs.DefaultLane && op.lane == "" {
					want[op.state]++
				}
			}
			for _, state := range states {
				if l.States[state] != want[state] {
					t.Fatalf("lane %q: %v, want %v", l.Name, l.States, want)
				}
			}
			if len(l.States) > len(want) || l.Queued != want[statefs.Queued] || l.Running != want[statefs.Running] ||
				l.Paused != want[statefs.Paused] {
				t.Fatalf("lane %q: %+v, want %v", l.Name, l, want)
			}
			if l.Name == "" && counters.States()[statefs.Queued] != want[statefs.Queued] {
				t.Fatalf("%v are counted, %v live", counters.States(), want)
			}
		}
	})
}

// An estimate differs from the exact percentile by less than a bucket is wide.
func TestPercentilesAreClose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(1000*time.Hour)), 1, 300).Draw(t, "durations")
		for _, d := range all {
			w.Add(time.Duration(d), noon)
		}
		slices.Sort(all)
		s := w.recent(noon)
		for _, part := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			exact := float64(all[int(math.Ceil(part*float64(len(all))))-1])
			if got := float64(s.quantile(part)); math.Abs(got-exact) > exact/steps+float64(2*time.Microsecond) {
				t.Fatalf("the quantile %v of %d durations is %v, want about %v", part, len(all), time.Duration(got),
					time.Duration(exact))
			}
		}
		if times := s.times(); times.Count != uint64(len(all)) || times.Max != seconds(time.Duration(all[len(all)-1])) {
			t.Fatalf("%+v", times)
		}
	})
}

func TestBucketsFollowEachOther(t *testing.T) {
	t.Parallel()
	last := -1
	for us := range int64(1 << 20) {
		at := bucketOf(time.Duration(us) * time.Microsecond)
		if at != last && at != last+1 {
			t.Fatalf("%d µs is in bucket %d, the one before in %d", us, at, last)
		}
		if back := bucketOf(bucketMiddle(at)); back != at {
			t.Fatalf("the middle %v of bucket %d is in bucket %d", bucketMiddle(at), at, back)
		}
		last = at
	}
	for _, d := range []time.Duration{-time.Second, math.MinInt64, math.MaxInt64, 200 * 24 * time.Hour} {
		if at := bucketOf(d); at < 0 || at >= len(histogram{}.counts) {
			t.Errorf("%v is in bucket %d", d, at)
		}
	}
}

func TestAWindowForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var counters Counters
		counts := func() (waiting, processing uint64) {
			lanes, all := counters.Lanes(time.Now())
			if len(lanes) != 1 || lanes[0].Waiting.Count != all.Waiting.Count {
				t.Fatalf("%+v, %+v", lanes, all)
			}
			return all.Waiting.Count, all.Processing.Count
		}
		counters.AddWait("", time.Second, time.Now())
		counters.AddRun("", time.Minute, time.Now())
		for _, step := range []struct {
			later time.Duration
			want  uint64
		}{{windowHalf - 1, 1}, {windowHalf, 1}, {1, 0}} {
			<-time.After(step.later)
			if waiting, processing := counts(); waiting != step.want || processing != step.want {
				t.Fatalf("%v later there are %d and %d, want %d", step.later, waiting, processing, step.want)
			}
		}
		counters.AddWait("", time.Second, time.Now())
		counters.AddWait("", time.Second, time.Now().Add(-24*time.Hour)) // the clock was set back
		if waiting, _ := counts(); waiting > 2 {
			t.Fatalf("%d", waiting)
		}
	})
}

func TestAgesDouble(t *testing.T) {
	t.Parallel()
	var counters Counters
	queued := func(lane string, since time.Time) Place { return Place{lane, statefs.Queued, since} }
	for _, ago := range []time.Duration{-time.Minute, 0, time.Second, 3 * time.Second, 3 * time.Second} {
		counters.Move(Place{}, queued("a", noon.Add(-ago)))
	}
	counters.Move(Place{}, queued("b", noon.Add(-4*time.Second)))
	counters.Move(Place{}, queued("b", noon.Add(-99*time.Second)))
	counters.Move(queued("b", noon.Add(-99*time.Second)), Place{})
	lanes, all := counters.Lanes(noon)
	want := api.Ages{{Below: 1, Count: 2}, {Below: 2, Count: 1}, {Below: 4, Count: 2}}
	if !slices.Equal(lanes[0].Ages, want) || lanes[0].OldestWait != 3 {
		t.Errorf("%+v, want %v", lanes[0], want)
	}
	if want = append(want, api.Bucket{Below: 8, Count: 1}); !slices.Equal(all.Ages, want) || all.OldestWait != 4 {
		t.Errorf("%+v, want %v", all, want)
	}
	counters.Move(Place{}, queued("b", time.Unix(0, 0)))
	if _, all := counters.Lanes(noon); len(all.Ages) != maxBuckets || all.Ages[maxBuckets-1].Count != 1 {
		t.Errorf("%+v", all)
	}
}

func BenchmarkMove(b *testing.B) {
	var counters Counters
	queued, running := Place{"default", statefs.Queued, noon}, Place{"default", statefs.Running, noon}
	b.ReportAllocs()
	for b.Loop() {
		counters.Move(Place{}, queued)
		counters.Move(queued, running)
		counters.Move(running, Place{})
	}
}
