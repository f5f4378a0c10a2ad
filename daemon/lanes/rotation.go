package lanes

import (
	"maps"
	"slices"
	"sync"
)

// envRotation counts the runs of each lane that rotates its environment, so that each run gets the
// next value. The counters are persisted and continue after a restart.
type envRotation struct {
	mu   sync.Mutex
	last map[string]uint64
}

// configOf returns the configuration of a lane, the zero value for a lane that the daemon does not have.
func (l *Lanes) configOf(lane string) (none LaneConfig) {
	if s := l.byName[lane]; s != nil {
		return s.config
	}
	return none
}

// NextTurn returns the turn of a run that starts in a lane: its number in the rotation, from 1. It
// returns 0 for a lane that does not rotate its environment.
func (l *Lanes) NextTurn(lane string) uint64 {
	t := &l.rotation
	if len(l.configOf(lane).Rotate) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[lane]
	if !known {
		last = l.config.Owner.Lanes.Rotation(lane)
	}
	t.last[lane] = last + 1
	if err := l.config.Owner.Lanes.SetRotation(lane, last+1); err != nil {
		l.config.Logger.Warn("turn of a lane not recorded; it may repeat after a restart",
			"lane", lane, "error", err)
	}
	return last + 1
}

// Environ returns the variables that a lane adds to the environment of the run with this turn, as
// NAME=value.
func (l *Lanes) Environ(lane string, turn uint64) []string {
	c := l.configOf(lane)
	env := slices.Clone(c.Env)
	if turn == 0 {
		return env
	}
	for _, name := range slices.Sorted(maps.Keys(c.Rotate)) {
		if values := c.Rotate[name]; len(values) > 0 {
			env = append(env, name+"="+values[(turn-1)%uint64(len(values))])
		}
	}
	return env
}
