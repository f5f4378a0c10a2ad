package history

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
)

// TestLiveIndexEqualsRows changes the live operations at random, and compares each page of each
// list with one made from all rows.
func TestLiveIndexEqualsRows(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var ended []*statefs.Record // each was live before, and is in the index
	for i := range 12 {
		ended = append(ended, r.end(fmt.Sprintf("j%d", i%3), statefs.Completed))
	}
	states := []statefs.State{statefs.Queued, statefs.Running, statefs.Paused}
	number := uint64(10_000)
	rapid.Check(t, func(t *rapid.T) {
		living := new(LiveIndex)
		has := make(map[statefs.ID]Packed) // what living should contain
		over := make(map[statefs.ID]bool)  // the ending ones
		change := func(row Row) Row {
			row.Status = rapid.SampledFrom(states).Draw(t, "status")
			row.Lane = rapid.SampledFrom([]string{"", "cookie"}).Draw(t, "lane")
			row.Key = rapid.SampledFrom([]string{"", "k"}).Draw(t, "key")
			row.Updated = noon.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "updated")) * time.Second)
			return row
		}
		put := func(row Row) {
			living.Put(row.Pack())
			has[row.ID] = row.Pack()
			delete(over, row.ID)
		}
		some := func() (statefs.ID, bool) {
			ids := slices.SortedFunc(maps.Keys(has), func(a, b statefs.ID) int { return int(a.Sequence()) - int(b.Sequence()) })
			if len(ids) == 0 {
				return statefs.ID{}, false
			}
			return rapid.SampledFrom(ids).Draw(t, "id"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"new": func(t *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					number++
					at := noon.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "created")) * time.Second)
					put(change(Row{
						ID: testID(number), Created: at, Group: "g",
						Job: rapid.SampledFrom([]string{"j0", "j1"}).Draw(t, "job"),
					}))
				}
			},
			"change": func(t *rapid.T) {
				if id, ok := some(); ok {
					row, err := has[id].Unpack()
					if err != nil {
						t.Fatal(err)
					}
					put(change(row))
				}
			},
			"ends": func(t *rapid.T) { // it is in the index already, as in the daemon
				row := RowOf(rapid.SampledFrom(ended).Draw(t, "ended"))
				row.Status = statefs.Running
				put(row)
				living.End(row.Pack())
				over[row.ID] = true
			},
			"may end": func(*rapid.T) {
				if id, ok := some(); ok {
					living.End(has[id])
					over[id] = true
				}
			},
			"gone": func(*rapid.T) {
				if id, ok := some(); ok {
					living.Remove(has[id])
					delete(has, id)
					delete(over, id)
				}
			},
			"": func(t *rapid.T) {
				if living.Len() != len(has) {
					t.Fatalf("%d, want %d", living.Len(), len(has))
				}
				lives := &LiveView{Index: living}
				rows := maps.Clone(has)
				if id, ok := some(); ok && rapid.Bool().Draw(t, "hide") {
					lives.Hidden = append(lives.Hidden, has[id])
					delete(rows, id)
				}
				if id, ok := some(); ok && rows[id] != nil && rapid.Bool().Draw(t, "instead") {
					row, _ := has[id].Unpack()
					changed := change(row)
					lives.Rows, rows[id] = append(lives.Rows, changed.Pack()), changed.Pack()
				}
				q := Query{
					Sort:  rapid.SampledFrom([]Sort{ByCreated, ByUpdated}).Draw(t, "sort"),
					Limit: rapid.IntRange(0, 4).Draw(t, "limit"), Offset: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "offset"),
					Statuses: rapid.SampledFrom([][]statefs.State{
						nil,
						{statefs.Queued},
						{statefs.Queued, statefs.Completed},
						{statefs.Paused, statefs.Running},
					}).Draw(t, "statuses"),
					Lane: rapid.SampledFrom([]string{"", "cookie"}).Draw(t, "of lane"),
					Job:  rapid.SampledFrom([]string{"", "j1"}).Draw(t, "of job"),
					Key:  rapid.SampledFrom([]string{"", "", "k"}).Draw(t, "of key"),
				}
				if rapid.Bool().Draw(t, "times") {
					q.Since, q.Until = noon.Add(5*time.Second), noon.Add(30*time.Second)
				}
				if rapid.Bool().Draw(t, "change") {
					q.UpdatedSince = noon.Add(9 * time.Second)
				}
				samePages(t, r, q, lives, slices.Collect(maps.Values(rows)))
			},
		})
	})
}

// samePages compares all pages of a query over lives and over rows, which hold the same operations.
func samePages(t *rapid.T, r *rig, q Query, lives *LiveView, rows []Packed) {
	for n := 0; ; n++ {
		got, err := r.List(r.t.Context(), &q, lives)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.List(r.t.Context(), &q, viewOf(rows...))
		if err != nil {
			t.Fatal(err)
		}
		if got.Total != want.Total || got.Exact != want.Exact || (got.Next == nil) != (want.Next == nil) ||
			len(got.Entries) != len(want.Entries) {
			t.Fatalf("page %d of %+v: %d of %d, next %v; want %d of %d, next %v", n, q, len(got.Entries), got.Total, got.Next,
				len(want.Entries), want.Total, want.Next)
		}
		for i, e := range got.Entries {
			if w := want.Entries[i]; e.Live != w.Live || string(e.Row.Pack()) != string(w.Row.Pack()) {
				t.Fatalf("page %d of %+v: %+v, want %+v", n, q, e, w)
			}
		}
		if q.After = got.Next; q.After == nil {
			return
		}
		if q.After.String() != want.Next.String() {
			t.Fatalf("page %d of %+v ends elsewhere", n, q)
		}
	}
}

func testID(n uint64) statefs.ID {
	id, err := statefs.MakeID("g-x", noon, 1, n)
	if err != nil {
		panic(err)
	}
	return id
}

// TestLiveIndexWithManyRows splits and empties blocks, in random order.
func TestLiveIndexWithManyRows(t *testing.T) {
	t.Parallel()
	const n = 5 * blockSize
	living := new(LiveIndex)
	row := func(i int) Row {
		return Row{ID: testID(uint64(i + 1)), Status: statefs.Queued, Created: noon.Add(time.Duration(i) * time.Second)}
	}
	for i := range n {
		at := row(i * 7919 % n)
		living.Put(at.Pack())
	}
	for i := range n {
		if i%3 != 0 {
			at := row(i)
			living.Remove(at.Pack())
		}
	}
	q := Query{Statuses: []statefs.State{statefs.Queued}, Limit: 100}
	at := n - 1
	for {
		page, err := (&Store{}).List(t.Context(), &q, &LiveView{Index: living})
		must(t, err)
		if page.Total != (n+2)/3 {
			t.Fatalf("total %d", page.Total)
		}
		for _, e := range page.Entries {
			for at%3 != 0 {
				at--
			}
			if want := row(at); e.Row.ID != want.ID {
				t.Fatalf("%s, want %s", e.Row.ID, want.ID)
			}
			at--
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	if at >= 0 {
		t.Errorf("%d are missing", at/3+1)
	}
	for i := range n {
		at := row(i)
		living.Remove(at.Pack())
	}
	if living.Len() != 0 || len(living.blocks) != 0 || len(living.counts) != 0 {
		t.Errorf("%d rows, %d blocks, %d counts are left", living.Len(), len(living.blocks), len(living.counts))
	}
}

// TestEndsWhileAListIsMade ends operations between the snapshot of the live rows and the query of
// the index: each appears once, and counts once.
func TestEndsWhileAListIsMade(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = 3 * endedSlack
	living := new(LiveIndex)
	var records []*statefs.Record
	rows := make(map[*statefs.Record]Packed)
	for i := range n {
		rec := r.unpublished(fmt.Sprintf("j%d", i), statefs.Completed)
		row := RowOf(rec)
		row.Status, row.Number = statefs.Running, 0
		records, rows[rec] = append(records, rec), row.Pack()
		living.Put(rows[rec])
	}
	for turn := 0; turn < n/2; turn += 50 {
		q := Query{Limit: 20}
		f := q.filter()
		lives := &LiveView{Index: living}
		seen := lives.snapshot(f, q.Limit+1+endedSlack)
		for _, rec := range records[n-turn-50 : n-turn] {
			living.End(rows[rec])
			r.Ended(rec)
			if turn > 0 {
				living.Remove(rows[rec])
			}
		}
		must(t, r.awaitApplied(t.Context()))
		must(t, r.view(func(x index) error {
			got, totals, _ := seen.resolve(f, lives, x.has, q.Limit+1)
			if want := n - turn - 50; sumOf(totals) != want {
				t.Errorf("turn %d: %v live, want %d", turn, totals, want)
			}
			for _, m := range got {
				if x.id.Get(m.key[8:]) != nil {
					t.Errorf("turn %d: one that has ended is live", turn)
				}
			}
			return nil
		}))
		page, err := r.List(t.Context(), &q, lives)
		must(t, err)
		if page.Total != n || len(page.Entries) != 20 {
			t.Errorf("turn %d: %d of %d", turn, len(page.Entries), page.Total)
		}
	}
}

// BenchmarkLiving lists 100,000 queued operations.
func BenchmarkLiving(b *testing.B) {
	living := new(LiveIndex)
	for i := range uint64(100_000) {
		row := Row{
			ID: testID(i + 1), Group: "g", Job: "x", Lane: "cookie", Status: statefs.Queued,
			Created: noon.Add(time.Duration(i) * time.Millisecond),
			Updated: noon.Add(time.Duration(i) * time.Millisecond), Params: `{"title":"one of very many"}`, Key: "k",
			Tags: []string{"video", "all"},
		}
		living.Put(row.Pack())
	}
	queued := []statefs.State{statefs.Queued}
	for name, q := range map[string]Query{
		"first page":            {Statuses: queued, Limit: 2},
		"by update":             {Statuses: queued, Limit: 2, Sort: ByUpdated},
		"by key":                {Statuses: queued, Limit: 2, Key: "k"},
		"by tag":                {Statuses: queued, Limit: 2, Tag: "all"},
		"by text":               {Statuses: queued, Limit: 2, Text: "very many"},
		"by text that few have": {Statuses: queued, Limit: 1, Text: "_r77777"},
		"of a time":             {Statuses: queued, Limit: 2, Since: noon.Add(time.Second)},
		"a page far behind": {Statuses: queued, Limit: 200, After: &Cursor{
			ByCreated, timeKey(noon.Add(50*time.Second).UnixNano(), keyOf(testID(50_001))),
		}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, err := (&Store{}).List(b.Context(), &q, &LiveView{Index: living})
				if err != nil || len(page.Entries) != q.Limit {
					b.Fatal(len(page.Entries), err)
				}
			}
		})
	}
	b.Run("put", func(b *testing.B) {
		row := Row{ID: testID(7), Group: "g", Job: "x", Status: statefs.Running, Created: noon}
		packed := row.Pack()
		for b.Loop() {
			living.Put(packed)
		}
	})
}
