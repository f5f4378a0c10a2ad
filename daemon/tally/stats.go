package tally

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
)

func seconds(d time.Duration) api.Seconds {
	return api.Seconds(math.Round(float64(d)/float64(time.Millisecond)) / 1000)
}

func addAge(a *api.Ages, age time.Duration, count int) {
	at := 0
	for limit := time.Second; age >= limit && at < maxBuckets-1; at++ {
		limit *= 2
	}
	for len(*a) <= at {
		*a = append(*a, api.Bucket{Below: api.Seconds(math.Pow(2, float64(len(*a))))})
	}
	(*a)[at].Count += count
}

// maxBuckets bounds the histogram: the last bucket holds all longer durations, which are years.
const maxBuckets = 30

func mergeAges(a *api.Ages, other api.Ages) {
	if *a == nil {
		*a = api.Ages{}
	}
	for i, b := range other {
		if len(*a) <= i {
			*a = append(*a, api.Bucket{Below: b.Below})
		}
		(*a)[i].Count += b.Count
	}
}
