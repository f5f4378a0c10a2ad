package daemon

import (
	"github.com/jobdir/jobdir/breaker"
	"github.com/jobdir/jobdir/queue"
)

// DefaultLane is where operations wait whose job names no lane. It is there without being set, and unlimited then.
const DefaultLane = "default"

// LaneConfig is a lane as the configuration has it. The zero value starts nothing: its capacity is 0.
type LaneConfig struct {
	queue.Lane
	// Env are NAME=value entries for every command that starts in the lane; those of the job count more.
	Env []string
	// Rotate gives each run the next of several values of a variable.
	Rotate map[string][]string
	// Breaker pauses the lane after failures; nil never does.
	Breaker *BreakerConfig
}

// BreakerConfig says when a lane pauses itself.
type BreakerConfig = breaker.Settings
