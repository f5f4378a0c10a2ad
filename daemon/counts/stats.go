package counts

import (
	"math"
	"math/bits"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
)

func seconds(d time.Duration) api.Seconds {
	return api.Seconds(math.Round(float64(d)/float64(time.Millisecond)) / 1000)
}

// addAge counts operations in the bucket of an age in seconds, whose limits are powers of two.
func addAge(a *api.Ages, age int64, count int) {
	at := min(bits.Len64(uint64(age)), maxBuckets-1)
	for len(*a) <= at {
		*a = append(*a, api.Bucket{Below: api.Seconds(math.Pow(2, float64(len(*a))))})
	}
	(*a)[at].Count += count
}

// maxBuckets bounds the histogram: the last bucket holds all longer durations, which are years.
const maxBuckets = 30
