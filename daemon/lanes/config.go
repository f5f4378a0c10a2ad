package lanes

import (
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/queue"
)

// LaneConfig is the configuration of a lane. The zero value starts nothing, because its capacity is
// 0.
type LaneConfig struct {
	queue.Lane
	// Env holds NAME=value entries for every command that starts in the lane. Entries of the job
	// override them.
	Env []string
	// Rotate maps a variable to its values, which successive runs get in rotation.
	Rotate map[string][]string
	// Breaker pauses the lane after failures; nil disables it.
	Breaker *breaker.Settings
}
