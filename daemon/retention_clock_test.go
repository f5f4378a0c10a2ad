package daemon

import (
	"testing"
	"time"
)

// Deleting cannot be undone, so the retention follows a forward clock jump only after a day.
func TestTimeOfTheRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	noon := time.Date(2025, 11, 26, 12, 0, 0, 0, time.UTC)
	type look struct{ ran, clock, want time.Duration } // since noon
	for name, looks := range map[string][]look{
		"no jump":              {{0, 0, 0}, {time.Hour, time.Hour, time.Hour}, {40 * day, 40 * day, 40 * day}},
		"corrected by seconds": {{0, 0, 0}, {time.Hour, time.Hour + 30*time.Second, time.Hour + 30*time.Second}},
		"ahead and back": {
			{0, 0, 0},
			{time.Hour, 366 * day, time.Hour},
			{2 * time.Hour, 366 * day, 2 * time.Hour},
			{3 * time.Hour, 3 * time.Hour, 3 * time.Hour},
		},
		"ahead by a day and back": {
			{0, 0, 0},
			{time.Hour, day + time.Hour, time.Hour},
			{2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		},
		"past 2038 and back": {
			{0, 0, 0},
			{time.Hour, 5000 * day, time.Hour},
			{2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		},
		"ahead for good": {
			{0, 0, 0},
			{time.Hour, 100 * day, time.Hour},
			{day, 101 * day, day},
			{day + time.Hour, 101 * day, 101 * day},
			{2 * day, 102*day - time.Hour, 102*day - time.Hour},
		},
		"back": {
			{0, 0, 0},
			{time.Hour, -day, -day},
			{2 * time.Hour, time.Hour - day, time.Hour - day},
		},
		"to 1970 and right again": {
			{0, 0, 0},
			{time.Hour, -20000 * day, -20000 * day},
			{2 * time.Hour, 2 * time.Hour, 2*time.Hour - 20000*day - time.Hour},
			{day + 2*time.Hour, day, day},
		},
		"ahead twice": {
			{0, 0, 0},
			{time.Hour, 10 * day, time.Hour},
			{20 * time.Hour, 400 * day, 20 * time.Hour},
			{day + time.Hour, 401 * day, 401 * day},
		},
		"ahead, back and ahead again": {
			{0, 0, 0},
			{time.Hour, 10 * day, time.Hour},
			{20 * time.Hour, 20 * time.Hour, 20 * time.Hour},
			{30 * time.Hour, 40 * day, 30 * time.Hour},
		},
	} {
		var s retentionClock
		for i, l := range looks {
			if got := s.now(noon.Add(l.clock), l.ran); !got.Equal(noon.Add(l.want)) {
				t.Errorf("%s: look %d is at %s, want %s", name, i, got, noon.Add(l.want))
			}
		}
	}
}
