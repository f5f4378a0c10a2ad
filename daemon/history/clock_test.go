package history

import (
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// However the clock jumps between two ends, both are listed and are in the feed in the order of
// their numbers, even after a rebuild of the index. Nothing is deleted before it has expired by the
// present clock.
func TestHistoryWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		clock time.Time // after the jump
		old   string    // what is older than ten days by then
	}{
		"ahead by a day": {noon.AddDate(0, 0, 1), ""},
		"back by a day":  {noon.AddDate(0, 0, -1), ""},
		"back by a year": {noon.AddDate(-1, 0, 0), ""},
		"to 1970":        {time.Unix(1, 0), ""},
		// the daemon's retention clock does not follow such a jump at once
		"past 2038": {time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC), "before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			first := r.end("before", statefs.Completed)
			r.clock = test.clock
			second := r.end("after", statefs.Completed)
			if second.FinishedSeq <= first.FinishedSeq || second.ID.Sequence() <= first.ID.Sequence() {
				t.Errorf("%s, end %d, comes after %s, end %d", second.ID, second.FinishedSeq, first.ID, first.FinishedSeq)
			}
			for _, anew := range []bool{false, true} {
				r.stop()
				if anew {
					must(t, r.removeIndex())
				}
				r.open()
				rows, last := r.feed(0)
				if len(rows) != 2 || rows[0].ID != first.ID || rows[1].ID != second.ID || last < second.FinishedSeq {
					t.Errorf("the feed, anew %t, up to %d: %+v", anew, last, rows)
				}
				jobs, page := r.list(Query{})
				if text := strings.Join(jobs, " "); page.Total != 2 || len(jobs) != 2 || !strings.Contains(text, "before") ||
					!strings.Contains(text, "after") {
					t.Errorf("the list, anew %t: %q of %d", anew, jobs, page.Total)
				}
				plan, err := r.Plan(t.Context(), Retention{Age: 240 * time.Hour, FailedAge: 240 * time.Hour}, Guards{}, r.clock)
				must(t, err)
				var old []string
				for _, v := range plan {
					old = append(old, strings.TrimPrefix(v.ID.Endpoint(), "g-"))
				}
				if text := strings.Join(old, " "); text != test.old {
					t.Errorf("too old, anew %t: %q, want %q", anew, text, test.old)
				}
			}
		})
	}
}
