package schedule

import (
	"hash/fnv"
	"math"
	"time"
)

// Jitter returns the delay of a start after its slot: a duration below most that is always the same for the
// same job and slot, and evenly distributed over jobs and slots.
func Jitter(job string, slot time.Time, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(job + " " + slot.UTC().Format(time.RFC3339))) // a hash does not fail
	mixed := sum.Sum64()
	// The high bits of FNV are the better ones only after a last mix.
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	return time.Duration(float64(mixed) / math.MaxUint64 * float64(most-1))
}
