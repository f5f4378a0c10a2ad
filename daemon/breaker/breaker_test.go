package breaker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
)

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }

func id(t interface{ Fatal(args ...any) }, n int) statefs.ID {
	made, err := statefs.MakeID("test-job", began, 1, uint64(n))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// step is one call, as text in the table: what happens, to whom, in which minute, and what it answers.
type step struct {
	what   string
	n      int
	minute int
	code   string
	says   bool
	state  State
	holds  bool
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	three := Settings{Failures: 3, Within: 10 * time.Minute, Cooldown: 15 * time.Minute}
	for _, test := range []struct {
		name     string
		settings Settings
		steps    []step
	}{
		{"it opens at the third failure, lets one through and closes when that goes well", three, []step{
			{"failed", 1, 0, "exit", false, Closed, false},
			{"failed", 2, 1, "exit", false, Closed, false},
			{"failed", 3, 2, "exit", true, Open, true},
			{"pass", 0, 16, "", false, Open, true},
			{"pass", 0, 17, "", true, Trial, false},
			{"began", 4, 18, "", true, Trial, true},
			{"began", 5, 18, "", false, Trial, true},
			{"succeeded", 4, 19, "", true, Closed, false},
			{"failed", 6, 20, "exit", false, Closed, false}, // the count begins anew
			{"failed", 7, 20, "exit", false, Closed, false},
			{"failed", 8, 20, "exit", true, Open, true},
		}},
		{"it opens again when the one that is tried fails, for the whole time", three, []step{
			{"failed", 1, 0, "exit", false, Closed, false},
			{"failed", 2, 0, "exit", false, Closed, false},
			{"failed", 3, 0, "exit", true, Open, true},
			{"pass", 0, 15, "", true, Trial, false},
			{"began", 4, 15, "", true, Trial, true},
			{"failed", 4, 20, "exit", true, Open, true},
			{"pass", 0, 34, "", false, Open, true},
			{"pass", 0, 35, "", true, Trial, false},
		}},
		{"failures that are too old do not count", three, []step{
			{"failed", 1, 0, "exit", false, Closed, false},
			{"failed", 2, 5, "exit", false, Closed, false},
			{"failed", 3, 10, "exit", false, Closed, false}, // the first one is ten minutes old
			{"failed", 4, 14, "exit", true, Open, true},
		}},
		{"only the errors that it names count", Settings{
			Failures: 1, Within: time.Minute, Cooldown: time.Minute,
			Codes: []string{"auth"},
		}, []step{
			{"failed", 1, 0, "exit", false, Closed, false},
			{"failed", 2, 0, "auth", true, Open, true},
			{"pass", 0, 1, "", true, Trial, false},
			{"began", 3, 1, "", true, Trial, true},
			{"failed", 3, 2, "exit", false, Trial, false}, // inconclusive: the next one becomes the trial
			{"began", 4, 2, "", true, Trial, true},
			{"succeeded", 4, 3, "", true, Closed, false},
		}},
		{"what ran when it opened proves nothing", Settings{Failures: 1, Within: time.Minute, Cooldown: time.Minute}, []step{
			{"failed", 1, 0, "exit", true, Open, true},
			{"succeeded", 2, 0, "", false, Open, true},
			{"failed", 3, 0, "exit", false, Open, true},
			{"pass", 0, 1, "", true, Trial, false},
			{"succeeded", 2, 1, "", false, Trial, false},
			{"began", 4, 1, "", true, Trial, true},
			{"failed", 3, 1, "exit", false, Trial, true},
			{"succeeded", 2, 1, "", false, Trial, true},
			{"left", 4, 1, "", true, Trial, false}, // it was cancelled
			{"left", 4, 1, "", false, Trial, false},
			{"began", 5, 1, "", true, Trial, true},
		}},
		{"the clock is set back", three, []step{
			{"failed", 1, 100, "exit", false, Closed, false},
			{"failed", 2, 100, "exit", false, Closed, false},
			{"failed", 3, 9, "exit", true, Open, true},
			{"pass", 0, 24, "", true, Trial, false},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := New(test.settings)
			for i, s := range test.steps {
				var says bool
				switch s.what {
				case "failed":
					says = b.Failed(id(t, s.n), s.code, at(s.minute))
				case "succeeded":
					says = b.Succeeded(id(t, s.n))
				case "left":
					says = b.Inconclusive(id(t, s.n))
				case "began":
					says = b.Started(id(t, s.n))
				case "pass":
					says = b.AllowTrial(at(s.minute))
				}
				if says != s.says || b.State() != s.state || b.Blocks() != s.holds {
					t.Fatalf("step %d %+v: says %t, is %s, holds %t", i, s, says, b.State(), b.Blocks())
				}
			}
		})
	}
}

func TestRestoreAndReset(t *testing.T) {
	t.Parallel()
	b := New(Settings{Failures: 1, Within: time.Minute, Cooldown: time.Minute})
	b.Restore(at(5), statefs.ID{})
	if b.State() != Open || !b.Until().Equal(at(5)) || b.AllowTrial(at(4)) || !b.AllowTrial(at(5)) || !b.Until().IsZero() {
		t.Errorf("%+v", b)
	}
	b.Restore(at(5), id(t, 7))
	if b.State() != Trial || !b.Blocks() || b.TrialID() != id(t, 7) || !b.Succeeded(id(t, 7)) {
		t.Errorf("%+v", b)
	}
	b.Failed(id(t, 8), "x", at(6))
	b.Reset()
	if b.State() != Closed || b.Blocks() || b.Failures(at(6)) != 0 {
		t.Errorf("%+v", b)
	}
}

// Invariants: a closed breaker has fewer failures than its limit; it blocks exactly while it is open or a
// trial runs; only the trial closes it; and after the cooldown it always allows a trial.
func TestBreakerWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		settings := Settings{
			Failures: rapid.IntRange(1, 4).Draw(t, "failures"),
			Within:   time.Duration(rapid.IntRange(1, 20).Draw(t, "within")) * time.Minute,
			Cooldown: time.Duration(rapid.IntRange(1, 20).Draw(t, "cooldown")) * time.Minute,
		}
		b := New(settings)
		now, running, trial, next := began, []int{}, 0, 1
		var counted []time.Time // the failures while closed
		take := func() int {
			i := rapid.IntRange(0, len(running)-1).Draw(t, "who")
			n := running[i]
			running = append(running[:i], running[i+1:]...)
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "minutes")) * time.Minute)
			before := b.State()
			switch what := rapid.SampledFrom([]string{"start", "fail", "succeed", "leave", "pass", "restart"}).Draw(t, "what"); {
			case what == "pass":
				due := before == Open && !now.Before(b.Until())
				if b.AllowTrial(now) != due {
					t.Fatalf("open until %s, now %s: passes %t", b.Until(), now, !due)
				}
			case what == "restart" && before == Closed:
				last := b.CountedFailures()
				b = New(settings)
				b.RestoreFailures(last)
			case what == "restart":
			case what == "start" && !b.Blocks():
				if tried := b.Started(id(t, next)); tried != (before == Trial) {
					t.Fatalf("%s: a start is tried: %t", before, tried)
				} else if tried {
					trial = next
				}
				running, next = append(running, next), next+1
			case len(running) == 0 || what == "start":
			case what == "fail":
				n := take()
				opened := b.Failed(id(t, n), "x", now)
				if before == Closed {
					counted = append(counted, now)
				}
				in := 0
				for _, at := range counted {
					if now.Sub(at) < settings.Within {
						in++
					}
				}
				want := before == Closed && in >= settings.Failures || before == Trial && n == trial
				if opened != want {
					t.Fatalf("%s, %d failures: opens %t", before, in, opened)
				}
				if opened {
					counted = nil
					if !b.Until().Equal(now.Add(settings.Cooldown)) {
						t.Fatalf("until %s", b.Until())
					}
				}
			case what == "succeed":
				n := take()
				if b.Succeeded(id(t, n)) != (before == Trial && n == trial) {
					t.Fatalf("%s: %d closes it, and %d is tried", before, n, trial)
				}
			case what == "leave":
				n := take()
				if b.Inconclusive(id(t, n)) != (before == Trial && n == trial) {
					t.Fatalf("%s: %d leaves, and %d is tried", before, n, trial)
				}
			}
			if b.Blocks() != (b.State() == Open || b.TrialID() != statefs.ID{}) || b.State() != Trial &&
				b.TrialID() != (statefs.ID{}) {
				t.Fatal(fmt.Sprintf("%+v", b))
			}
			if b.TrialID() == (statefs.ID{}) {
				trial = 0
			}
		}
	})
}

func TestRecall(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	b := New(Settings{Failures: 3, Within: time.Hour, Cooldown: time.Minute})
	b.RestoreFailures([]time.Time{
		now.Add(-time.Minute), now.Add(-2 * time.Hour), now.Add(-2 * time.Minute),
		now.Add(-3 * time.Minute),
	})
	if got := b.CountedFailures(); len(got) != 2 || !got[0].Equal(now.Add(-2*time.Minute)) || b.State() != Closed {
		t.Errorf("%v, %s: a restart alone opens nothing", got, b.State())
	}
	if n := b.Failures(now.Add(58*time.Minute + time.Second)); n != 1 {
		t.Errorf("%d failures count, want those of the last hour", n)
	}
	if b.Failed(id(t, 1), "x", now.Add(58*time.Minute+time.Second)) ||
		!b.Failed(id(t, 2), "x", now.Add(58*time.Minute+2*time.Second)) {
		t.Error("one and two more do not open it")
	}
	if b.RestoreFailures([]time.Time{now}); b.State() != Open || len(b.CountedFailures()) != 0 {
		t.Error("an open one counts failures")
	}
}
