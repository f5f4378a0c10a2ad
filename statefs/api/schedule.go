package api

import (
	"encoding/json"
	"slices"
	"time"
)

// Schedules are the schedules of all jobs that have one, sorted by the address of the job.
type Schedules struct {
	// Count is the number of Schedules.
	Count     int        `json:"count"`
	Schedules []Schedule `json:"schedules"`
}

// Schedule is the schedule of one job.
type Schedule struct {
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	// Jitter is a number of seconds.
	Jitter  float64 `json:"jitter_seconds,omitempty"`
	Overlap string  `json:"overlap"`
	Missed  string  `json:"missed"`
	Enabled bool    `json:"enabled"`
	// Next is the next slot, according to the clock of the daemon; nil when the schedule is off.
	Next *time.Time `json:"next,omitempty"`
	// Last is the last slot that was handled, Operation the operation that the schedule started last, and Skipped why
	// Last started none.
	Last      *time.Time `json:"last,omitempty"`
	Operation string     `json:"operation,omitempty"`
	Skipped   string     `json:"skipped,omitempty"`

	// Raw is the whole JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler and keeps the whole object in Raw.
func (s *Schedule) UnmarshalJSON(data []byte) error {
	type plain Schedule
	s.Raw = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(s))
}
