package tally

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
)

// The messages that tally makes; package api has their members.
type (
	// Stats is the statistics of live operations.
	Stats = api.LiveStats
	// Lane is the statistics of a lane.
	Lane = api.LaneStats
	// Seconds is a duration shown in seconds, to a millisecond.
	Seconds = api.Seconds
	// Bucket counts durations below a number of seconds that are not in the previous bucket.
	Bucket = api.Bucket
	// Ages is a histogram with doubling buckets.
	Ages = api.Ages
	// Times is a summary of durations.
	Times = api.Times
)

func seconds(d time.Duration) Seconds {
	return Seconds(math.Round(float64(d)/float64(time.Millisecond)) / 1000)
}

func addAge(a *Ages, age time.Duration, count int) {
	at := 0
	for limit := time.Second; age >= limit && at < maxBuckets-1; at++ {
		limit *= 2
	}
	for len(*a) <= at {
		*a = append(*a, Bucket{Below: Seconds(math.Pow(2, float64(len(*a))))})
	}
	(*a)[at].Count += count
}

// maxBuckets bounds the histogram: the last bucket holds all longer durations, which are years.
const maxBuckets = 30

func mergeAges(a *Ages, other Ages) {
	if *a == nil {
		*a = Ages{}
	}
	for i, b := range other {
		if len(*a) <= i {
			*a = append(*a, Bucket{Below: b.Below})
		}
		(*a)[i].Count += b.Count
	}
}
