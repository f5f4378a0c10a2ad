package api

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Stats are counts and durations of a daemon.
type Stats struct {
	LiveStats
	// States counts each operation once, by status: live operations, and the kept ended ones. The latter are left
	// out while the index is being built.
	States map[statefs.State]int `json:"states"`
	// Outbox summarizes the pending deliveries.
	Outbox statefs.OutboxStatus `json:"outbox"`
}

// LiveStats is the part of Stats about live operations.
type LiveStats struct {
	At time.Time `json:"at"`
	// WindowSeconds is the maximum period that waiting and processing cover; the minimum is half of it.
	WindowSeconds int `json:"window_seconds"`
	// Lanes are all lanes that are configured or ever had an operation, by name; All is their sum, without a
	// name.
	Lanes []LaneStats `json:"lanes"`
	All   LaneStats   `json:"all"`
}

// LaneStats is the statistics of a lane.
type LaneStats struct {
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

// Bucket counts durations below a number of seconds that are not in the previous bucket.
type Bucket struct {
	Below Seconds `json:"below_seconds"`
	Count int     `json:"count"`
}

// Ages is a histogram with doubling buckets: below 1 s, 2 s, 4 s and so on, up to the last non-empty one.
type Ages []Bucket

// Times is a summary of durations: percentiles to 6 %, and the maximum.
type Times struct {
	Count uint64  `json:"count"`
	P50   Seconds `json:"p50_seconds"`
	P90   Seconds `json:"p90_seconds"`
	P99   Seconds `json:"p99_seconds"`
	Max   Seconds `json:"max_seconds"`
}
