package tally

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Stats is what /api/v1/stats says of what lives.
type Stats struct {
	At time.Time `json:"at"`
	// WindowSeconds is how far back waiting and processing look at most; at least half of it.
	WindowSeconds int `json:"window_seconds"`
	// Lanes are all that are configured or ever had an operation, by name; All is the sum of them, without a name.
	Lanes []Lane `json:"lanes"`
	All   Lane   `json:"all"`
}

// Lane is what a lane is like.
type Lane struct {
	Name string `json:"lane,omitempty"`
	// Capacity is how many may run at once; nil: any number.
	Capacity *int `json:"capacity"`
	// Held and Closed say that the lane starts nothing and takes nothing at the moment.
	Held   bool `json:"held,omitempty"`
	Closed bool `json:"closed,omitempty"`

	Running int                   `json:"running"`
	Queued  int                   `json:"queued"`
	Paused  int                   `json:"paused"`
	States  map[statefs.State]int `json:"states"`
	// OldestWait is how long the one that has been queued longest is, to a second; 0 when none is.
	OldestWait Seconds `json:"oldest_wait_seconds"`
	// Ages is how long those that are queued have been, to a second.
	Ages Ages `json:"ages"`
	// Waiting is how long those were queued that began to run in the window; Processing how long the last run of those worked that ended.
	Waiting    Times `json:"waiting"`
	Processing Times `json:"processing"`
}

// Seconds is a time that is shown as seconds, to a millisecond.
type Seconds float64

func seconds(d time.Duration) Seconds {
	return Seconds(math.Round(float64(d)/float64(time.Millisecond)) / 1000)
}

// Bucket counts what is younger than so many seconds, and not in the bucket before.
type Bucket struct {
	Below Seconds `json:"below_seconds"`
	Count int     `json:"count"`
}

// Ages is a histogram whose buckets double: below 1 s, 2 s, 4 s and so on, up to the last that holds any.
type Ages []Bucket

func (a *Ages) add(age time.Duration, count int) {
	at := 0
	for limit := time.Second; age >= limit && at < mostBuckets-1; at++ {
		limit *= 2
	}
	for len(*a) <= at {
		*a = append(*a, Bucket{Below: Seconds(math.Pow(2, float64(len(*a))))})
	}
	(*a)[at].Count += count
}

// mostBuckets bounds the histogram: the last bucket takes what is older, which is years.
const mostBuckets = 30

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
