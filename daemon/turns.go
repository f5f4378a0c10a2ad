package daemon

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// turns count the runs of the lanes that rotate their environment, so that each gets the next value, also after a restart.
type turns struct {
	owner  *statefs.Owner
	logger *slog.Logger
	lanes  map[string]LaneConfig

	mu   sync.Mutex
	last map[string]uint64
}

func newTurns(c *Config, logger *slog.Logger) turns {
	return turns{owner: c.Owner, logger: logger, lanes: c.Lanes, last: make(map[string]uint64)}
}

// next returns the turn of a run that begins in a lane, from 1; 0 when the lane rotates nothing.
func (t *turns) next(lane string) uint64 {
	if len(t.lanes[lane].Rotate) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[lane]
	if !known {
		last = t.owner.Rotation(lane)
	}
	t.last[lane] = last + 1
	if err := t.owner.SetRotation(lane, last+1); err != nil {
		t.logger.Warn("the turn of a lane cannot be written down; after a restart it may come again", "lane", lane, "error", err)
	}
	return last + 1
}

// environ returns what a lane adds to the environment of the run that has a turn, as NAME=value.
func (t *turns) environ(lane string, turn uint64) []string {
	c := t.lanes[lane]
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
