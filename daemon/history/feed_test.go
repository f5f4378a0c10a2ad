package history

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func TestFeedWaitsForLowerNumbers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, second := r.unpublished("first", statefs.Completed), r.unpublished("second", statefs.Completed)
	unused, err := r.Number()
	must(t, err)
	third := r.unpublished("third", statefs.Completed)
	r.Ended(second)
	r.Ended(third)
	if rows, _ := r.feed(0); len(rows) != 0 {
		t.Fatalf("before the first one: %+v", rows)
	}
	if jobs, _ := r.list(Query{}); !slices.Equal(jobs, []string{"third", "second"}) {
		t.Errorf("the list waits too: %v", jobs)
	}
	r.Ended(first)
	rows, last := r.feed(0)
	if len(rows) != 2 || rows[0].Job != "first" || rows[1].Job != "second" {
		t.Fatalf("before the unused one: %+v", rows)
	}
	r.Unused(unused)
	if rows, _ = r.feed(last); len(rows) != 1 || rows[0].Job != "third" {
		t.Fatalf("after %d: %+v", last, rows)
	}
	if rows, _, err := r.Finished(t.Context(), 0, 2); err != nil || len(rows) != 2 {
		t.Errorf("limit: %+v, %v", rows, err)
	}
	if beyond := (*BeyondError)(nil); true {
		_, _, err := r.Finished(t.Context(), third.FinishedSeq+1, 2)
		if !errors.As(err, &beyond) {
			t.Errorf("%v", err)
		}
	}
}

func TestFeedOfStops(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec := r.unpublished("a", statefs.Completed)
	end := rec.FinishedSeq
	var earlier uint64
	for range 2 {
		number, err := r.Number()
		must(t, err)
		rec.NeedsPersonSeq = number
		r.Stopped(rec, earlier)
		earlier = number
	}
	r.Ended(rec)
	rows, _ := r.feed(0)
	if len(rows) != 3 || rows[0].Number != end || rows[0].NeedsPerson || !rows[1].NeedsPerson ||
		rows[2].Status != statefs.FailedManual {
		t.Fatalf("%+v", rows)
	}
	if jobs, page := r.list(Query{}); len(jobs) != 1 || page.Total != 1 {
		t.Errorf("a stop is in the list: %v", jobs)
	}
	must(t, r.Delete(t.Context(), rec.ID, Guards{}, r.clock))
	if rows, _ := r.feed(0); len(rows) != 0 {
		t.Errorf("left: %+v", rows)
	}
}

// TestFeedIsExact has consumers follow the feed while operations end and the index is stopped,
// opened, and lost.
func TestFeedIsExact(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var ended []uint64
	var seen []uint64
	var last uint64
	for round := range 6 {
		var group sync.WaitGroup
		var mu sync.Mutex
		records := make([]*statefs.Record, 20)
		for i := range records {
			records[i] = r.unpublished("j", statefs.Completed)
			ended = append(ended, records[i].FinishedSeq)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		group.Go(func() {
			for range records {
				rows, next, err := r.Finished(ctx, last, 3)
				mu.Lock()
				for _, row := range rows {
					seen = append(seen, row.Number)
				}
				last = next
				full := len(seen) >= 20*(round+1)
				mu.Unlock()
				if err != nil || full {
					return
				}
			}
		})
		for _, i := range []int{7, 3, 19, 0, 1, 2, 4, 5, 6, 18, 17, 8, 9, 10, 16, 11, 12, 15, 13, 14} {
			r.Ended(records[i])
		}
		group.Wait()
		cancel()
		if round == 3 {
			r.stop()
			must(t, errors.Join(r.removeIndex()))
			r.open()
		} else {
			r.reopen()
		}
	}
	rows, _ := r.feed(last)
	for _, row := range rows {
		seen = append(seen, row.Number)
	}
	if !slices.Equal(seen, ended) {
		t.Errorf("seen %v\nended %v", seen, ended)
	}
}

func TestFeedWakes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got := make(chan []Row, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		rows, _, _ := r.Finished(ctx, 0, 10)
		got <- rows
	})
	r.end("a", statefs.Completed)
	select {
	case rows := <-got:
		if len(rows) != 1 || rows[0].Job != "a" {
			t.Errorf("%+v", rows)
		}
	case <-time.After(patience):
		t.Error("it slept on")
	}
}
