package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func (r *rig) removeIndex() error { return os.Remove(r.file(FileName)) }

func TestRetention(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		keep   Retention
		guards func(ids map[string]statefs.ID) Guards
		want   string // "job reason" of the victims, the oldest first
	}{
		"nothing is set":     {Retention{}, nil, ""},
		"age":                {Retention{Age: 10 * day}, nil, "a age, c age, d age"},
		"age of failed ones": {Retention{FailedAge: 10 * day}, nil, "b age"},
		"both ages":          {Retention{Age: 20 * day, FailedAge: 30 * day}, nil, "a age, b age, c age"},
		"nothing is old":     {Retention{Age: 50 * day, FailedAge: 50 * day}, nil, ""},
		"count":              {Retention{Count: 4}, nil, "a count, b count, c count"},
		"count and age":      {Retention{Count: 5, Age: 35 * day}, nil, "a age, b count"},
		"bytes":              {Retention{Bytes: 45_000}, nil, "a bytes, b bytes, c bytes"},
		"guarded": {Retention{Age: 10 * day}, func(ids map[string]statefs.ID) Guards {
			return Guards{
				Undelivered: map[statefs.ID]bool{ids["a"]: true},
				Referred:    map[statefs.ID]Reference{ids["c"]: {By: ids["b"]}},
			}
		}, "d age"},
		"what retries another goes with it": {Retention{Age: day}, nil, "a age, c age, d age, e age, f age"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			ids := make(map[string]statefs.ID)
			end := func(job string, status statefs.State, change ...func(*statefs.Record)) {
				change = append(change, func(rec *statefs.Record) {
					must(t, os.WriteFile(r.tree.LogPath(rec.ID), make([]byte, 10_000), 0o640))
				})
				ids[job] = r.end(job, status, change...).ID
				r.clock = r.clock.Add(7 * day)
			}
			end("a", statefs.Completed)
			end("b", statefs.Failed)
			end("c", statefs.Completed)
			end("d", statefs.Cancelled)
			end("pinned", statefs.Completed, func(rec *statefs.Record) { rec.Pinned = true })
			end("e", statefs.Completed)
			e := ids["e"]
			r.clock = r.clock.Add(-6 * day)
			end("f", statefs.Completed, func(rec *statefs.Record) { rec.RetryOf = &e })
			r.clock = noon.Add(38 * day)
			var guards Guards
			if c.guards != nil {
				guards = c.guards(ids)
			}
			plan, err := r.Plan(t.Context(), c.keep, guards, r.clock)
			must(t, err)
			var got []string
			for _, v := range plan {
				got = append(got, strings.TrimPrefix(v.ID.Endpoint(), "g-")+" "+v.Reason)
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Fatalf("%s, want %s", text, c.want)
			}
			pruned, err := r.Prune(t.Context(), c.keep, always(guards), r.clock)
			if err != nil || !slices.Equal(pruned, plan) {
				t.Errorf("%v, %v", pruned, err)
			}
			r.check(ids, plan)
			r.stop()
			must(t, r.removeIndex())
			r.open()
			r.check(ids, plan)
		})
	}
}

func always(g Guards) func() (Guards, error) { return func() (Guards, error) { return g, nil } }

// TestPruneChecksGuardsAgain adds reasons to keep operations during a prune.
func TestPruneChecksGuardsAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.pruneAtOnce = 2
	ids := make(map[string]statefs.ID)
	for _, job := range []string{"a", "b", "c", "d", "e", "f", "again"} {
		ids[job] = r.end(job, statefs.Completed, func(rec *statefs.Record) {
			must(t, os.WriteFile(r.tree.LogPath(rec.ID), []byte("x"), 0o640))
			if e := ids["e"]; job == "again" {
				rec.RetryOf = &e
			}
		}).ID
	}
	var guards Guards
	looks := 0
	look := func() (Guards, error) {
		switch looks++; looks {
		case 3: // the first two are gone
			guards.ReferRetry(ids["b"], ids["c"])
		case 4:
			guards.Undelivered = map[statefs.ID]bool{ids["e"]: true}
		}
		return guards, nil
	}
	pruned, err := r.Prune(t.Context(), Retention{Age: time.Nanosecond}, look, r.clock.Add(time.Hour))
	must(t, err)
	var got []string
	for _, v := range pruned {
		got = append(got, strings.TrimPrefix(v.ID.Endpoint(), "g-"))
	}
	if text := strings.Join(got, " "); text != "a b d f again" {
		t.Errorf("deleted: %s", text)
	}
	r.check(ids, pruned)
}

// check compares files, list and counts with the operations that must be gone.
func (r *rig) check(ids map[string]statefs.ID, gone []Victim) {
	r.t.Helper()
	_, page := r.list(Query{})
	if page.Total != len(ids)-len(gone) || len(page.Entries) != page.Total {
		r.t.Errorf("total %d, entries %d", page.Total, len(page.Entries))
	}
	for job, id := range ids {
		left, err := filepath.Glob(filepath.Join(r.dir, "operations", id.Day(), id.String()+"*"))
		must(r.t, err)
		want := 2
		if slices.ContainsFunc(gone, func(v Victim) bool { return v.ID == id }) {
			want = 0
		}
		if len(left) != want {
			r.t.Errorf("%s: %v", job, left)
		}
		if _, has, err := r.Find(id); err != nil || has != (want > 0) {
			r.t.Errorf("%s: in the index %v, %v", job, has, err)
		}
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first := r.end("first", statefs.Failed)
	second := r.end("second", statefs.Completed, func(rec *statefs.Record) { rec.RetryOf = &first.ID })
	held := func(name string, id statefs.ID, guards Guards, reason string) {
		t.Helper()
		var kept *HeldError
		if err := r.Delete(t.Context(), id, guards, r.clock); !errors.As(err, &kept) ||
			!strings.Contains(kept.Reason, reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	held("referred", first.ID, Guards{}, second.ID.String()+"' retries it")
	held("referred by a live one", second.ID, Guards{Referred: map[statefs.ID]Reference{second.ID: {By: first.ID}}},
		"operation '"+first.ID.String()+"', which lives, retries it")
	held("come after by a live one", second.ID, Guards{Referred: map[statefs.ID]Reference{second.ID: {
		By:    first.ID,
		After: true,
	}}}, "operation '"+first.ID.String()+"', which lives, comes after it")
	held("undelivered", second.ID, Guards{Undelivered: map[statefs.ID]bool{second.ID: true}}, "delivered")
	must(t, r.Pin(t.Context(), second.ID, true))
	held("pinned", second.ID, Guards{}, "pinned")
	r.reopen()
	held("pinned, after a start", second.ID, Guards{}, "pinned")
	must(t, r.Pin(t.Context(), second.ID, false))
	must(t, r.Delete(t.Context(), second.ID, Guards{}, r.clock))
	must(t, r.Delete(t.Context(), first.ID, Guards{}, r.clock))
	for _, err := range []error{r.Delete(t.Context(), first.ID, Guards{}, r.clock), r.Pin(t.Context(), first.ID, true)} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
}

// TestInterruptedDeletionResumes interrupts deletions at each step; the next start completes them.
func TestInterruptedDeletionResumes(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("index lost %v", lost), func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			kept, doomed, renamed := r.end("kept", statefs.Completed), r.end("doomed", statefs.Completed),
				r.end("renamed", statefs.Completed)
			must(t, os.WriteFile(r.tree.LogPath(renamed.ID), []byte("x"), 0o640))
			for _, id := range []statefs.ID{doomed.ID, renamed.ID} {
				must(t, r.do(t.Context(), change{apply: func(x index) error {
					return x.scheduleDeletion(id, r.clock,
						r.deletedIDRetention)
				}}))
			}
			record := filepath.Join(r.dir, "operations", renamed.ID.Day(), renamed.ID.String())
			must(t, os.Rename(record+".json", record+".deleted"))
			if jobs, _ := r.list(Query{}); !slices.Equal(jobs, []string{"kept"}) {
				t.Errorf("before: %v", jobs)
			}
			r.stop()
			want := []string{"kept"}
			if lost {
				must(t, r.removeIndex())
				want = []string{"doomed", "kept"} // the deletion is forgotten; its files are complete
			}
			r.open()
			must(t, r.Resume(t.Context()))
			if jobs, page := r.list(Query{}); !slices.Equal(jobs, want) || page.Total != len(want) {
				t.Errorf("after: %v", jobs)
			}
			if left, _ := filepath.Glob(record + "*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if _, err := r.tree.ReadRecord(kept.ID); err != nil {
				t.Error(err)
			}
			if _, err := r.tree.ReadRecord(doomed.ID); (err == nil) != lost {
				t.Errorf("doomed: %v", err)
			}
		})
	}
}

// TestWholeDays deletes whole folders, but none that contains anything else.
func TestWholeDays(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first := r.end("a", statefs.Completed)
	r.end("b", statefs.Completed)
	r.clock = r.clock.AddDate(0, 0, 10)
	mixed := r.end("c", statefs.Completed)
	r.end("d", statefs.Completed)
	live := r.live(statefs.Submission{Group: "g", Job: "live"})
	r.clock = r.clock.AddDate(0, 0, 10)
	pruned, err := r.Prune(t.Context(), Retention{Age: time.Hour}, always(Guards{}), r.clock)
	if err != nil || len(pruned) != 4 {
		t.Fatalf("%v, %v", pruned, err)
	}
	if r.exists("operations/" + first.ID.Day()) {
		t.Error("the folder of a day stays")
	}
	if !r.exists("operations/" + mixed.ID.Day() + "/" + live.ID.String() + ".json") {
		t.Error("a live operation was deleted")
	}
	if entries, err := os.ReadDir(filepath.Join(r.tree.Dir(), "tmp")); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
