package history

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// TestFiltersReadWhatMatches queries few operations of many by tag and by text, and counts the rows
// read. Deletions, changes and a restart of the index must not change a result.
func TestFiltersReadWhatMatches(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const all = segmentSize + 200 // a complete segment, whose texts are indexed, and part of another
	var ids []statefs.ID
	for i := range all {
		rec := r.end("job", statefs.Completed, func(rec *statefs.Record) {
			rec.Params = fmt.Appendf(nil, `{"title":"Volume %04d of MANY"}`, i)
			rec.Tags = []string{"all", fmt.Sprintf("of-%d", i%100), fmt.Sprint("only-", i)}
		})
		ids = append(ids, rec.ID)
	}
	awaitSealed := func() {
		t.Helper()
		must(t, r.awaitApplied(t.Context()))
		for deadline := time.Now().Add(patience); ; {
			sealed := false
			must(t, r.view(func(x index) error { sealed = x.grams.Get(numberKey(0)) != nil; return nil }))
			if sealed {
				must(t, r.do(t.Context(), change{})) // the writer is idle
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the texts of a complete segment are not indexed")
			}
		}
	}
	// finds compares a result, page by page, with the expected operations, the newest first.
	finds := func(what string, q Query, most int, want ...int) {
		t.Helper()
		slices.SortFunc(want, func(a, b int) int { return b - a })
		for _, q.Sort = range []Sort{ByCreated, ByUpdated} {
			before := r.rowsRead()
			var got []int
			q.Limit, q.After = 7, nil
			for {
				page, err := r.List(t.Context(), &q, viewOf())
				must(t, err)
				if page.Total != len(want) || !page.Exact {
					t.Errorf("%s: total %d, exact %t, want %d", what, page.Total, page.Exact, len(want))
				}
				for _, e := range page.Entries {
					got = append(got, slices.Index(ids, e.Row.ID))
				}
				if q.After = page.Next; q.After == nil {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %s: %v, want %v", what, q.Sort, got, want)
			}
			pages := int64(len(want)/7 + 1)
			if read := (r.rowsRead() - before) / pages; read > int64(most) {
				t.Errorf("%s by %s: %d rows were read for a page, want %d at most", what, q.Sort, read, most)
			}
		}
	}
	every := func(n, from int, gone ...int) (want []int) {
		for i := from; i < all; i += n {
			if !slices.Contains(gone, i) {
				want = append(want, i)
			}
		}
		return want
	}
	const rest = 200 + 60 // the incomplete segment, and reads of other buckets
	check := func(gone ...int) {
		t.Helper()
		finds("a tag of one", Query{Tag: "only-17"}, 60, 17)
		finds("a tag of some", Query{Tag: "of-5"}, 60, every(100, 5, gone...)...)
		finds("no tag", Query{Tag: "only"}, 60)
		finds("a text of one", Query{Text: "volume 0018 OF"}, rest, 18)
		finds("a text of one in the rest", Query{Text: "volume 1200"}, rest, 1200)
		finds("a text of some", Query{Text: "05 of many"}, rest, every(100, 5, gone...)...)
		finds("no text", Query{Text: "volume 9"}, rest)
		finds("a tag and a text", Query{Tag: "of-5", Text: "0105"}, 60, 105)
		finds("a tag and a time", Query{Tag: "of-5", Until: ids[105].Time(time.Local)}, 60, 5)
	}
	awaitSealed()
	check()
	must(t, r.Delete(t.Context(), ids[305], Guards{}, r.clock))
	must(t, r.Pin(t.Context(), ids[405], true))
	awaitSealed()
	check(305)
	r.reopen()
	awaitSealed()
	check(305)
	r.stop()
	must(t, os.Remove(r.file(FileName)))
	r.open()
	awaitSealed()
	check(305)
	must(t, r.Pin(t.Context(), ids[405], false))
	_, err := r.Prune(t.Context(), Retention{Count: 100}, func() (Guards, error) { return Guards{}, nil }, r.clock)
	must(t, err)
	must(t, r.view(func(x index) error {
		if key, _ := x.grams.Cursor().First(); key != nil {
			t.Errorf("texts of deleted operations are left: %x", key)
		}
		return nil
	}))
}

// rowsRead grows with each row read, and by a few for each query.
func (r *rig) rowsRead() int64 {
	stats := r.db.Stats()
	return stats.TxStats.GetCursorCount()
}
