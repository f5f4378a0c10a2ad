package statefs

import "time"

// LaneStatus is the status of a lane. Only the daemon knows all of it; no file holds it.
type LaneStatus struct {
	Name string `json:"name"`
	// Known is false for a lane that is not in the configuration although operations wait or run in
	// it.
	Known bool `json:"known"`
	// Capacity is how many operations may run at once, and Configured the configured number; nil is
	// unlimited.
	Capacity   *int `json:"capacity"`
	Configured *int `json:"configured"`
	// Running counts the operations that hold a place, including those paused with a process.
	// Waiting counts the operations that wait for a place, the first of them since Oldest.
	Running int        `json:"running"`
	Waiting int        `json:"waiting"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	// MaxStarts limits how often an operation starts, such as 30/1m, and Gap is the least time
	// between two starts. NextStart is when both allow the next start.
	MaxStarts string     `json:"max_starts,omitempty"`
	Gap       string     `json:"gap,omitempty"`
	NextStart *time.Time `json:"next_start,omitempty"`
	// Paused is why the lane starts nothing and Closed why it accepts nothing; nil if it does.
	// PausedByAll and ClosedByAll mean that this applies to every lane.
	Paused      *LaneHold `json:"paused,omitempty"`
	PausedByAll bool      `json:"paused_by_all,omitempty"`
	Closed      *LaneHold `json:"closed,omitempty"`
	ClosedByAll bool      `json:"closed_by_all,omitempty"`
	// Breaker is nil for a lane without a breaker.
	Breaker  *BreakerStatus `json:"breaker,omitempty"`
	Problems []LaneProblem  `json:"problems,omitempty"`
}

// BreakerStatus is the status of a lane's breaker.
type BreakerStatus struct {
	// State is closed, open (nothing starts) or trial (one operation starts, and its outcome
	// decides).
	State string `json:"state"`
	// Failures is how many failures count at the moment.
	Failures int `json:"failures"`
	// Until is when one operation may start, and Trial is that operation.
	Until *time.Time `json:"until,omitempty"`
	Trial ID         `json:"trial,omitzero"`
}

// LaneProblem is a file of lanes/ that does not have the effect its name suggests.
type LaneProblem struct {
	File   string `json:"file"` // such as lanes/cookie.capacity
	Reason string `json:"reason"`
}

// LimitStatus is the status of a limit.
type LimitStatus struct {
	Name     string `json:"name"`
	Known    bool   `json:"known"` // false: not in the configuration
	Capacity *int   `json:"capacity"`
	Running  int    `json:"running"`
}

// LanesStatus is the status of all lanes and limits.
type LanesStatus struct {
	Lanes  []LaneStatus  `json:"lanes"`
	Limits []LimitStatus `json:"limits"`
	// Paused and Closed are the holds of every lane; nil if there is none.
	Paused *LaneHold `json:"paused,omitempty"`
	Closed *LaneHold `json:"closed,omitempty"`
	// Problems are problem files that belong to no lane.
	Problems []LaneProblem `json:"problems,omitempty"`
}

// Lane returns the status of one lane, nil if there is none.
func (s *LanesStatus) Lane(name string) *LaneStatus {
	for i := range s.Lanes {
		if s.Lanes[i].Name == name {
			return &s.Lanes[i]
		}
	}
	return nil
}

// LaneCapacityOf converts a capacity to its form in a status: nil is unlimited.
func LaneCapacityOf(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}
