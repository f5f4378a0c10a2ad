package tally

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Stats is the answer of /api/v1/stats about live operations.
type Stats struct {
	At time.Time `json:"at"`
	// WindowSeconds is the maximum period that waiting and processing cover; the minimum is half of it.
	WindowSeconds int `json:"window_seconds"`
	// Lanes are all lanes that are configured or ever had an operation, by name; All is their sum, without a
	// name.
	Lanes []Lane `json:"lanes"`
	All   Lane   `json:"all"`
}

// Lane is the statistics of a lane.
type Lane struct {
	Name string `json:"lane,omitempty"`
	// Capacity is how many operations may run at once; nil: any number.
	Capacity *int `json:"capacity"`
	// Held and Closed report that the lane starts nothing and accepts nothing at the moment.
	Held   bool `json:"held,omitempty"`
	Closed bool `json:"closed,omitempty"`

	Running int                   `json:"running"`
	Queued  int                   `json:"queued"`
	Paused  int                   `json:"paused"`
	States  map[statefs.State]int `json:"states"`
	// OldestWait is how long the longest queued operation waits, to a second; 0 if none is queued.
	OldestWait Seconds `json:"oldest_wait_seconds"`
	// Ages is how long the queued operations wait, to a second.
	Ages Ages `json:"ages"`
	// Waiting is how long operations were queued that began to run in the window; Processing is the duration
	// of the last run of operations that ended in it.
	Waiting    Times `json:"waiting"`
	Processing Times `json:"processing"`
}

// Seconds is a duration shown in seconds, to a millisecond.
type Seconds float64

func seconds(d time.Duration) Seconds {
	return Seconds(math.Round(float64(d)/float64(time.Millisecond)) / 1000)
}

// Bucket counts durations below a number of seconds that are not in the previous bucket.
type Bucket struct {
	Below Seconds `json:"below_seconds"`
	Count int     `json:"count"`
}

// Ages is a histogram with doubling buckets: below 1 s, 2 s, 4 s and so on, up to the last non-empty one.
type Ages []Bucket

func (a *Ages) add(age time.Duration, count int) {
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

func (a *Ages) merge(other Ages) {
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
