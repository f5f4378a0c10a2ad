package statefs

import "time"

// LaneStatus is how a lane stands. Only the daemon knows all of it; it stands in no file.
type LaneStatus struct {
	Name string `json:"name"`
	// Known is false for a lane that the configuration does not have: somebody waits or runs there all the same.
	Known bool `json:"known"`
	// Capacity is how many may run at once, and Configured how many the configuration says; nil is any number.
	Capacity   *int `json:"capacity"`
	Configured *int `json:"configured"`
	// Running counts those that hold a place, also while they are paused with a process; Waiting those that wait for one, the first of them
	// since Oldest.
	Running int        `json:"running"`
	Waiting int        `json:"waiting"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	// MaxStarts is how often something may start, such as 30/1m, and Gap the least time from one start to the next; NextStart is until when
	// either allows none.
	MaxStarts string     `json:"max_starts,omitempty"`
	Gap       string     `json:"gap,omitempty"`
	NextStart *time.Time `json:"next_start,omitempty"`
	// Paused and Closed are why nothing starts and nothing is taken; nil when it is. PausedByAll and ClosedByAll say that it is so for
	// every lane, whatever this one says.
	Paused      *LaneHold `json:"paused,omitempty"`
	PausedByAll bool      `json:"paused_by_all,omitempty"`
	Closed      *LaneHold `json:"closed,omitempty"`
	ClosedByAll bool      `json:"closed_by_all,omitempty"`
	// Breaker is nil for a lane that has none.
	Breaker  *BreakerStatus `json:"breaker,omitempty"`
	Problems []LaneProblem  `json:"problems,omitempty"`
}

// BreakerStatus is how the breaker of a lane stands.
type BreakerStatus struct {
	// State is closed, open (nothing starts) or trial (one operation starts, and what becomes of it decides).
	State string `json:"state"`
	// Failures is how many count at the moment.
	Failures int `json:"failures"`
	// Until is when one operation is let through, and Trial who was.
	Until *time.Time `json:"until,omitempty"`
	Trial ID         `json:"trial,omitzero"`
}

// LaneProblem is a file of lanes/ that does not do what it looks like.
type LaneProblem struct {
	File   string `json:"file"` // such as lanes/cookie.capacity
	Reason string `json:"reason"`
}

// LimitStatus is how a limit stands.
type LimitStatus struct {
	Name     string `json:"name"`
	Known    bool   `json:"known"` // false: the configuration does not have it
	Capacity *int   `json:"capacity"`
	Running  int    `json:"running"`
}

// LanesStatus is how all lanes and limits stand.
type LanesStatus struct {
	Lanes  []LaneStatus  `json:"lanes"`
	Limits []LimitStatus `json:"limits"`
	// Paused and Closed are those of every lane; nil when there is none.
	Paused *LaneHold `json:"paused,omitempty"`
	Closed *LaneHold `json:"closed,omitempty"`
	// Problems are files that belong to no lane.
	Problems []LaneProblem `json:"problems,omitempty"`
}

// Lane returns how one lane stands, nil when there is none.
func (s *LanesStatus) Lane(name string) *LaneStatus {
	for i := range s.Lanes {
		if s.Lanes[i].Name == name {
			return &s.Lanes[i]
		}
	}
	return nil
}

// LaneCapacityOf is a capacity as a status has it.
func LaneCapacityOf(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}
