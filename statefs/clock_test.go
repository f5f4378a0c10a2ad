package statefs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// jumps are the jumps that a clock may make at any moment.
var jumps = map[string]func(time.Time) time.Time{
	"ahead by a day":  func(t time.Time) time.Time { return t.AddDate(0, 0, 1) },
	"back by a day":   func(t time.Time) time.Time { return t.AddDate(0, 0, -1) },
	"back by seconds": func(t time.Time) time.Time { return t.Add(-10 * time.Second) },
	"past 2038":       func(time.Time) time.Time { return time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC) },
	"to 1970":         func(time.Time) time.Time { return time.Unix(1, 0) },
}

// TestStorageWhenTheClockJumps: wherever the clock jumps, no number repeats, every record is found
// and read, and the sweep does not touch it.
func TestStorageWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, jump := range jumps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, clock := t.TempDir(), testTime
			var all []ID
			ends, last := make(map[uint64]bool), uint64(0)
			for _, lost := range []bool{false, true, true, false} {
				// The counters are lost twice, and the times of the files differ from the clock.
				if lost {
					check(t, os.Remove(filepath.Join(dir, storageFile)))
				}
				tree := openTree(t, dir, Options{Durability: Process, Now: func() time.Time { return clock }})
				owner, err := Own(tree)
				check(t, err)
				for range 2 {
					rec := submit(t, tree)
					if n := len(all); n > 0 && rec.ID.Sequence() <= all[n-1].Sequence() {
						t.Errorf("%s comes after %s", rec.ID, all[n-1])
					}
					all = append(all, rec.ID)
					if found, err := tree.FindRecent(rec.ID.Sequence()); err != nil || !slices.Contains(found, rec.ID) {
						t.Errorf("%s is not found by its number: %v, %v", rec.ID, found, err)
					}
					if !tree.DayInUse(rec.ID.Day()) {
						t.Errorf("the day of %s may be removed", rec.ID)
					}
				}
				first, end, err := owner.Numbers.ReserveEnds(1)
				check(t, err)
				if ends[first] || first < last {
					t.Errorf("ends from %d on come after %d", first, last)
				}
				ends[first], last = true, end
				wantAll(t, owner, all)
				check(t, owner.Release())
				clock = jump(clock).Add(time.Duration(len(all)) * time.Second) // and the clock continues from there
			}
		})
	}
}

// wantAll checks that all operations are live, can be read, and are left alone by a sweep.
func wantAll(t *testing.T, owner *Owner, all []ID) {
	t.Helper()
	listing, err := owner.List()
	check(t, err)
	if len(listing.Markers) != len(all) {
		t.Errorf("%d of %d are listed", len(listing.Markers), len(all))
	}
	for _, id := range all {
		rec, err := owner.ReadRecord(id)
		check(t, err)
		if state, err := owner.State(id); err != nil || state != Queued || rec.Status != Queued {
			t.Errorf("%s is %s and %s: %v", id, state, rec.Status, err)
		}
	}
	findings, err := owner.Sweep(func(ID) bool { return true })
	if err != nil || len(findings) > 0 {
		t.Errorf("a sweep finds %v: %v", findings, err)
	}
}

// TestRequestsWhenTheClockJumps: of requests made before and after a jump of the clock, the last
// one wins.
func TestRequestsWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, jump := range jumps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testTime
			tree := openTree(t, t.TempDir(), Options{Durability: Process, Now: func() time.Time { return clock }})
			owner := ownTree(t, tree)
			id := submit(t, tree).ID
			// Two that were touched before, the pause last.
			for i, ask := range []Action{Resume, Pause} {
				file := put(t, tree, "", jobsDir, RequestName(id, ask))
				at := clock.Add(time.Duration(i-3) * time.Second)
				check(t, os.Chtimes(file, at, at))
			}
			clock = jump(clock)
			wantLater(t, owner, id, Resume, Pause)
			n, err := owner.Requests.Restore()
			check(t, err)
			sight, err := owner.ObserveAll(id)
			check(t, err)
			if n != 1 || len(sight.Requests) != 1 || sight.Requests[0] != Pause {
				t.Errorf("%d are put back, and there is %v", n, sight.Requests)
			}
			// A request made after the jump replaces the opposite, as usual.
			check(t, tree.Request(t.Context(), id, Resume, nil))
			if sight, err = owner.ObserveAll(id); err != nil || len(sight.Requests) != 1 || sight.Requests[0] != Resume {
				t.Errorf("after a resume there is %v: %v", sight.Requests, err)
			}
		})
	}
}

// wantLater takes two requests and checks that the second one counts as the later one.
func wantLater(t *testing.T, owner *Owner, id ID, first, second Action) {
	t.Helper()
	var taken []TakenRequest
	for _, ask := range []Action{second, first} { // each is read at another moment
		one, ok, err := owner.Requests.Take(id, ask)
		if !ok || err != nil {
			t.Fatalf("%s is not taken: %v", ask, err)
		}
		taken = append(taken, one)
		now := owner.options.Now
		owner.options.Now = func() time.Time { return now().Add(time.Millisecond) }
	}
	if taken[1].At.Compare(taken[0].At) >= 0 {
		t.Errorf("%s counts as of %s, and %s, which was asked after it, as of %s", first, taken[1].At.At,
			second, taken[0].At.At)
	}
}

// TestTimesOfARecordWhenTheClockJumps: a record may contain timestamps from before and after a
// change of the clock. No duration of work or pause is negative, and the work of an earlier run
// does not count for this one.
func TestTimesOfARecordWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	start := func(at time.Duration) PastTransition {
		return PastTransition{From: Queued, To: Running, Cause: CauseStart, At: testTime.Add(at)}
	}
	pause := func(at time.Duration) PastTransition {
		return PastTransition{From: Running, To: Paused, Cause: CausePause, At: testTime.Add(at)}
	}
	resume := func(at time.Duration) PastTransition {
		return PastTransition{From: Paused, To: Running, Cause: CauseResume, At: testTime.Add(at)}
	}
	rescued := func(at time.Duration) PastTransition {
		return PastTransition{From: Running, To: Queued, Cause: CauseRescued, At: testTime.Add(at)}
	}
	for name, test := range map[string]struct {
		began, now time.Duration
		list       []PastTransition
		want       time.Duration
	}{
		"no jump": {0, 9 * time.Second, []PastTransition{
			start(0), pause(3 * time.Second),
			resume(5 * time.Second),
		}, 7 * time.Second},
		"back while it works": {0, -day, []PastTransition{start(0)}, 0},
		"back while it is paused": {0, 4*time.Second - day, []PastTransition{
			start(0), pause(3 * time.Second),
			resume(-day),
		}, 7 * time.Second},
		"back before the pause": {0, 6*time.Second - day, []PastTransition{
			start(0), pause(3*time.Second - day),
			resume(4*time.Second - day),
		}, 2 * time.Second},
		"to 1970 and right again": {0, 9 * time.Second, []PastTransition{
			start(0), pause(-20000 * day),
			resume(5 * time.Second),
		}, 4 * time.Second},
		"back between two runs": {-day, 2*time.Second - day, []PastTransition{
			start(0), pause(time.Second),
			resume(2 * time.Second), rescued(3 * time.Second), start(-day),
		}, 2 * time.Second},
		"back between two runs, a pause": {-day, 9*time.Second - day, []PastTransition{
			start(0), pause(time.Second),
			rescued(3 * time.Second), start(-day), pause(4*time.Second - day),
		}, 4 * time.Second},
		"the start is not in it any more": {0, 9 * time.Second, []PastTransition{
			pause(3 * time.Second),
			resume(5 * time.Second),
		}, 7 * time.Second},
	} {
		began := testTime.Add(test.began)
		rec := &Record{StartedAt: &began, Transitions: append([]PastTransition{{
			To: Queued, Cause: CauseSubmit,
			At: testTime.Add(-time.Second),
		}}, test.list...)}
		if got := rec.ActiveTime(testTime.Add(test.now)); got != test.want {
			t.Errorf("%s: it has worked for %s, want %s", name, got, test.want)
		}
	}
	rec := &Record{}
	rec.transit("", Queued, CauseSubmit, testTime)
	rec.transit(Queued, Paused, CausePause, testTime)
	rec.transit(Paused, Queued, CauseRelease, testTime.Add(-day))
	rec.transit(Queued, Paused, CausePause, testTime.Add(-day))
	rec.transit(Paused, Queued, CauseRelease, testTime.Add(3*time.Second-day))
	if rec.PausedSeconds != 3 {
		t.Errorf("it was paused for %v seconds", rec.PausedSeconds)
	}
}

// TestProgressWhenTheClockJumps: a live operation shows the progress of its file, even if the clock
// went back since its record was written.
func TestProgressWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, jump := range jumps {
		clock := testTime
		owner := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process, Now: func() time.Time { return clock }}))
		rec := submit(t, owner.Tree)
		rec.Progress, rec.HeartbeatAt = &Progress{Done: 1, At: clock}, new(clock)
		clock = jump(clock).Add(time.Second)
		check(t, owner.Output.WriteProgress(rec.ID, Progress{Done: 2, At: clock}))
		if owner.Freshen(rec); rec.Progress.Done != 2 {
			t.Errorf("%s: %+v is shown", name, rec.Progress)
		}
	}
}
