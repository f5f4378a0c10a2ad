package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := *r.end("old", statefs.Completed)
	r.clock = r.clock.AddDate(0, 0, 1)
	r.end("plain", statefs.Completed)
	r.end("broken", statefs.Failed, func(rec *statefs.Record) {
		rec.Error = &statefs.Fault{
			Code:    "exit",
			Message: "Exit code 7",
		}
	})
	middle := r.clock
	r.end("dropped", statefs.Cancelled, func(rec *statefs.Record) { rec.Key = "k1" })
	r.end("some", statefs.Completed, func(rec *statefs.Record) {
		rec.Result, rec.Tags = statefs.Partial,
			[]string{"video", "x"}
	})
	r.end("other", statefs.Completed, func(rec *statefs.Record) { rec.Group, rec.Lane = "h", "cookie" })
	live := Row{
		ID: newID(t, 900), Job: "now", Group: "g", Status: statefs.Running, Created: r.clock.Add(time.Second),
		Updated: r.clock.Add(time.Second),
	}
	paused := Row{
		ID: newID(t, 901), Job: "held", Group: "g", Status: statefs.Paused, Created: noon.Add(-time.Hour),
		Updated: r.clock.Add(time.Minute),
	}
	stale := RowOf(&old)
	stale.Status = statefs.Running // it was read before it ended
	all := []Packed{live.Pack(), paused.Pack(), stale.Pack()}
	for name, c := range map[string]struct {
		query Query
		want  string
	}{
		"all":                {Query{}, "now other some dropped broken plain old held"},
		"by update":          {Query{Sort: ByUpdated}, "held now other some dropped broken plain old"},
		"completed":          {Query{Statuses: []statefs.State{statefs.Completed}}, "other some plain old"},
		"several states":     {Query{Statuses: []statefs.State{statefs.Failed, statefs.Running}}, "now broken"},
		"live ones":          {Query{Statuses: []statefs.State{statefs.Running, statefs.Paused}}, "now old held"},
		"result":             {Query{Results: []statefs.Result{statefs.Partial, statefs.Failure}}, "some broken"},
		"job":                {Query{Job: "plain"}, "plain"},
		"address of a job":   {Query{Job: "g/plain"}, "plain"},
		"of another group":   {Query{Job: "g/plain", Group: "h"}, ""},
		"group":              {Query{Group: "h"}, "other"},
		"lane":               {Query{Lane: "cookie"}, "other"},
		"endpoint":           {Query{Endpoint: "g-x"}, "now held"},
		"day":                {Query{Day: old.ID.Day()}, "now old held"},
		"key":                {Query{Key: "k1"}, "dropped"},
		"tag":                {Query{Tag: "video"}, "some"},
		"since":              {Query{Since: middle}, "now other some dropped broken"},
		"until":              {Query{Until: middle}, "plain old held"},
		"since and until":    {Query{Since: noon, Until: middle}, "plain old"},
		"updated":            {Query{UpdatedSince: middle}, "now other some dropped broken held"},
		"updated, by update": {Query{UpdatedSince: middle, Sort: ByUpdated}, "held now other some dropped broken"},
		"text in an error":   {Query{Text: "EXIT CODE"}, "broken"},
		"text in parameters": {Query{Text: `"title":"PLAIN"`}, "plain"},
		"text in an ID":      {Query{Text: "g-dropped_"}, "dropped"},
		"nothing":            {Query{Job: "none"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for limit := 1; limit < 10; limit += 3 {
				q := c.query
				q.Limit = limit
				jobs, page := r.list(q, all...)
				if got := strings.Join(jobs, " "); got != c.want {
					t.Errorf("limit %d: %s, want %s", limit, got, c.want)
				}
				if page.Total != len(strings.Fields(c.want)) || !page.Exact {
					t.Errorf("limit %d: total %d, exact %v", limit, page.Total, page.Exact)
				}
			}
			q := c.query
			q.Limit, q.Offset = 100, 2
			want := strings.Fields(c.want)
			if jobs, _ := r.list(q, all...); !slices.Equal(jobs, want[min(2, len(want)):]) {
				t.Errorf("offset 2: %v", jobs)
			}
		})
	}
}

// TestManyMatches counts matches one by one up to maxExactCount, and through the counts without a
// limit.
func TestManyMatches(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = maxExactCount + 5
	must(t, r.do(t.Context(), change{apply: func(x index) error {
		for i := range uint64(n) {
			row := Row{
				Number: i + 1, ID: newID(t, i+1), Job: "x", Group: "g", Status: statefs.Completed,
				Created: noon.Add(time.Duration(i)), Tags: []string{"t"},
			}
			if err := x.put(&row); err != nil {
				return err
			}
		}
		return nil
	}}))
	for name, c := range map[string]struct {
		query Query
		total int
		exact bool
	}{
		"all":         {Query{}, n, true},
		"by count":    {Query{Job: "x", Statuses: []statefs.State{statefs.Completed}}, n, true},
		"one by one":  {Query{Tag: "t"}, maxExactCount, false},
		"a few less":  {Query{Tag: "t", Since: noon.Add(5)}, maxExactCount, true},
		"of a time":   {Query{Since: noon.Add(1)}, maxExactCount, false},
		"a whole day": {Query{Since: noon.Add(-time.Hour)}, n, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := r.List(t.Context(), &c.query, viewOf())
			if err != nil || page.Total != c.total || page.Exact != c.exact {
				t.Errorf("%d, %v, %v; want %d, %v", page.Total, page.Exact, err, c.total, c.exact)
			}
		})
	}
}

// TestPagesWhileOperationsEnd reads the pages of a list while all its operations end: each
// operation appears once.
func TestPagesWhileOperationsEnd(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = 40
	var records []*statefs.Record
	live := make(map[statefs.ID]Packed)
	for i := range n {
		rec := r.unpublished(fmt.Sprintf("j%d", i), statefs.Completed)
		row := RowOf(rec)
		row.Status, row.Number = statefs.Running, 0
		records, live[rec.ID] = append(records, rec), row.Pack()
	}
	var seen []string
	q := Query{Limit: 3}
	for turn := 0; ; turn++ {
		var snapshot []Packed
		for _, data := range live {
			snapshot = append(snapshot, data)
		}
		// Between the snapshot of the live rows and the query of the index, some end, at both ends
		// of the list.
		for _, i := range []int{turn, n - 1 - turn} {
			r.Ended(records[i])
			delete(live, records[i].ID)
		}
		page, err := r.List(t.Context(), &q, viewOf(snapshot...))
		must(t, err)
		if page.Total != n {
			t.Errorf("turn %d: total %d", turn, page.Total)
		}
		for _, e := range page.Entries {
			seen = append(seen, e.Row.Job)
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	if want := names("j", n-1, 0); !slices.Equal(seen, want) {
		t.Errorf("%v", seen)
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "????", strings.Repeat("A", 33), strings.Repeat("A", 34)} {
		if _, err := ParseCursor(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	c := Cursor{ByUpdated, bytes.Repeat([]byte{7}, cursorSize)}
	again, err := ParseCursor(c.String())
	if err != nil || again.sort != c.sort || !bytes.Equal(again.key, c.key) {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestPackedRows packs rows, and parses bytes that are not rows.
func TestPackedRows(t *testing.T) {
	t.Parallel()
	id := newID(t, 5)
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time { return fromNanos(rapid.Int64().Draw(t, name)) }
		text := rapid.String()
		row := Row{
			Number: rapid.Uint64().Draw(t, "number"), ID: id, Job: text.Draw(t, "job"), Group: text.Draw(t, "group"),
			Lane:   text.Draw(t, "lane"),
			Status: statefs.Completed, Result: statefs.Success, Created: at("created"), Updated: at("updated"),
			Started:  at("started"),
			Finished: at("finished"), Key: text.Draw(t, "key"), Message: text.Draw(t, "message"), Params: text.Draw(t, "params"),
			ParamsCut: rapid.Bool().Draw(t, "cut"), Pinned: rapid.Bool().Draw(t, "pinned"),
			Bytes:   rapid.Int64().Draw(t, "bytes"),
			RetryOf: id, Tags: rapid.SliceOfN(text, 1, 3).Draw(t, "tags"), EarlierStop: rapid.Uint64().Draw(t, "earlier"),
		}
		packed := row.Pack()
		parsed, err := packed.parse()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parsed.row()
		if err != nil || !bytes.Equal(again.Pack(), packed) || !slices.Equal(again.Tags, row.Tags) ||
			!again.Created.Equal(row.Created) {
			t.Fatalf("%+v, %+v, %v", row, again, err)
		}
		cut := packed[:rapid.IntRange(0, len(packed)-1).Draw(t, "cut at")]
		if _, err := cut.parse(); err == nil {
			t.Fatalf("%d of %d bytes are taken for a row", len(cut), len(packed))
		}
	})
}

func FuzzParseRow(f *testing.F) {
	row := Row{Job: "j", Created: noon, Tags: []string{"t"}}
	f.Add([]byte(row.Pack()))
	f.Add([]byte{packedVersion, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := Packed(data).parse()
		if err != nil {
			return
		}
		parsed.tagged("t", []byte(`"t"`))
		(&Query{Text: "x", Endpoint: "y"}).filter().matches(&parsed)
		_, _ = parsed.row() // it must not panic
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"2025-11-26T13:07:00.5+01:00": time.Date(2025, 11, 26, 12, 7, 0, 5e8, time.UTC),
		"2025-11-26 13:07:00":         time.Date(2025, 11, 26, 13, 7, 0, 0, time.Local), // as the command line shows it
		"2025-11-26":                  time.Date(2025, 11, 26, 0, 0, 0, 0, time.Local),
		"7d":                          now.AddDate(0, 0, -7),
		"0s":                          now,
		"1h30m":                       now.Add(-90 * time.Minute),
	} {
		if at, ok := ParseTime(text, now); !ok || !at.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", text, at, ok, want)
		}
	}
	for _, text := range []string{
		"", "d", "-1d", "-1h", "65536d", "1", "yesterday", "2025-11-26T13:07:00", "2025-13-01",
		"2025-11-26 24:00:00",
	} {
		if at, ok := ParseTime(text, now); ok {
			t.Errorf("%q: %s", text, at)
		}
	}
}

// Lists and counts have an operation from its end on, once, while the writer of the index waits, and also when it
// has gone on.
func TestListsDoNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.end("a", statefs.Completed)
	must(t, r.awaitApplied(t.Context()))
	hold, err := r.db.Begin(true) // a transaction that writes: the writer waits for its end
	must(t, err)
	defer func() { _ = hold.Rollback() }()
	living := new(LiveIndex)
	var ended []*statefs.Record
	for _, job := range []string{"b", "c", "d"} {
		rec := r.unpublished(job, statefs.Completed)
		row := RowOf(rec)
		row.Status, row.Number = statefs.Running, 0
		living.Put(row.Pack())
		living.End(row.Pack())
		r.Ended(rec)
		if job != "d" { // this one is still in the table
			living.Remove(row.Pack())
		}
		ended = append(ended, rec)
	}
	check := func(when string) {
		t.Helper()
		view := &LiveView{Index: living}
		for _, test := range []struct {
			query Query
			want  []string
			total int
		}{
			{Query{Limit: 10}, []string{"d", "c", "b", "a"}, 4},
			{Query{Limit: 2}, []string{"d", "c"}, 4},
			{Query{Limit: 2, Offset: 1}, []string{"c", "b"}, 4},
			{Query{Limit: 10, Sort: ByUpdated}, []string{"d", "c", "b", "a"}, 4},
			{Query{Limit: 10, Job: "c"}, []string{"c"}, 1},
			{Query{Limit: 10, Text: `"title":"b"`}, []string{"b"}, 1},
			{Query{Limit: 10, Statuses: []statefs.State{statefs.Completed}}, []string{"d", "c", "b", "a"}, 4},
			{Query{Limit: 10, Number: ended[1].ID.Sequence()}, []string{"c"}, 1},
		} {
			page, err := r.List(t.Context(), &test.query, view)
			must(t, err)
			var got []string
			for _, e := range page.Entries {
				if got = append(got, e.Row.Job); e.Live || e.Row.Status != statefs.Completed {
					t.Errorf("%s, %+v: %s is live", when, test.query, e.Row.Job)
				}
			}
			if !slices.Equal(got, test.want) || page.Total != test.total {
				t.Errorf("%s, %+v: %q of %d, want %q of %d", when, test.query, got, page.Total, test.want, test.total)
			}
		}
		first, err := r.List(t.Context(), &Query{Limit: 2}, view)
		must(t, err)
		next, err := r.List(t.Context(), &Query{Limit: 2, After: first.Next}, view)
		must(t, err)
		if len(next.Entries) != 2 || next.Entries[0].Row.Job != "b" || next.Entries[1].Row.Job != "a" {
			t.Errorf("%s: the second page is %+v", when, next.Entries)
		}
		states, err := r.CountStates(view)
		must(t, err)
		if states[statefs.Completed] != 4 || states[statefs.Running] != 0 {
			t.Errorf("%s: counts %v", when, states)
		}
	}
	check("while the writer waits")
	must(t, hold.Rollback())
	check("while it goes on")
	must(t, r.awaitApplied(t.Context()))
	check("afterwards")
	must(t, r.Delete(t.Context(), ended[0].ID, Guards{}, r.clock))
	if jobs, _ := r.list(Query{}); !slices.Equal(jobs, []string{"d", "c", "a"}) {
		t.Errorf("after a deletion: %q", jobs)
	}
}
