package catalog

import (
	"time"

	"github.com/jobdir/jobdir/catalog/schedule"
)

// Schedule decides when a job starts by itself.
type Schedule struct {
	Spec *schedule.Spec
	// Jitter is by how much a start may be later than its slot; 0 is on time.
	Jitter  time.Duration
	Overlap schedule.Overlap
	Missed  schedule.Missed
	// Params are those of each start.
	Params Params
}

// OverlapOf returns what happens at due slots when the operation of an earlier slot has not ended. With
// MissedAll, missed slots do not skip each other: they wait in turn.
func (s *Schedule) OverlapOf(due []time.Time, now time.Time) schedule.Overlap {
	late := len(due) > 1 || len(due) == 1 && now.Sub(due[0]) > schedule.Late
	if late && s.Missed == schedule.MissedAll && s.Overlap == schedule.OverlapSkip {
		return schedule.OverlapQueue
	}
	return s.Overlap
}

// maxJitter is the longest delay of a start that a job may leave to chance.
const maxJitter = 24 * time.Hour
