package schedule

import "time"

// Status is the schedule of one job as lists show it.
type Status struct {
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// Jitter is a number of seconds.
	Jitter  float64 `json:"jitter_seconds,omitempty"`
	Overlap Overlap `json:"overlap"`
	Missed  Missed  `json:"missed"`
	Enabled bool    `json:"enabled"`
	// Next is the next slot, according to the current clock; nil if the schedule is off.
	Next *time.Time `json:"next,omitempty"`
	// Last is the slot that was dealt with last, Operation the operation that it started, and Skipped why it started none.
	Last      *time.Time `json:"last,omitempty"`
	Operation string     `json:"operation,omitempty"`
	Skipped   string     `json:"skipped,omitempty"`
}
