package catalog

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog/schedule"
)

// Missed slots do not skip each other if all of them fire; slots on time do.
func TestOverlapOfMissedSlots(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	slots := func(back ...time.Duration) (due []time.Time) {
		for _, b := range back {
			due = append(due, now.Add(-b))
		}
		return due
	}
	for _, c := range []struct {
		overlap schedule.Overlap
		missed  schedule.Missed
		due     []time.Time
		want    schedule.Overlap
	}{
		{schedule.OverlapSkip, schedule.MissedAll, slots(2*time.Hour, time.Hour), schedule.OverlapQueue},
		{schedule.OverlapSkip, schedule.MissedAll, slots(time.Hour), schedule.OverlapQueue},
		{schedule.OverlapSkip, schedule.MissedAll, slots(time.Second), schedule.OverlapSkip},
		{schedule.OverlapSkip, schedule.MissedAll, nil, schedule.OverlapSkip},
		{schedule.OverlapSkip, schedule.MissedOnce, slots(time.Hour), schedule.OverlapSkip},
		{schedule.OverlapQueue, schedule.MissedAll, slots(time.Hour), schedule.OverlapQueue},
		{schedule.OverlapCancel, schedule.MissedAll, slots(2*time.Hour, time.Hour), schedule.OverlapCancel},
	} {
		s := Schedule{Overlap: c.overlap, Missed: c.missed}
		if got := s.OverlapOf(c.due, now); got != c.want {
			t.Errorf("%s and %s at %v: %s, want %s", c.overlap, c.missed, c.due, got, c.want)
		}
	}
}
