package lanes

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// startHistory records the start times of lanes with a rate limit, so that a restart does not let
// them exceed it. Such lanes start rarely; other lanes record nothing.
type startHistory struct {
	owner  *statefs.Owner
	logger *slog.Logger

	mu    sync.Mutex
	lanes map[string]*laneStarts // the map never changes after newStartHistory
}

// laneStarts are the last starts of a lane.
type laneStarts struct {
	times      []time.Time
	limit      int // how many starts the rate limit needs
	writeEvery int // the file is written after this many starts
	unwritten  int
}

// historyWrites is how often the file is written, at most, while limit starts come: after each
// start if limit is no larger. So the bytes written per start stay at a few KiB.
const historyWrites = 64

func newStartHistory(c *Config) *startHistory {
	s := &startHistory{owner: c.Owner, logger: c.Logger, lanes: make(map[string]*laneStarts)}
	for name, set := range c.Lanes {
		most := max(set.Starts, 0)
		if set.Gap > 0 {
			most = max(most, 1)
		}
		if most == 0 {
			continue
		}
		most = min(most, statefs.MaxLaneTimes)
		times := c.Owner.Lanes.Times(name, statefs.LaneStarts)
		s.lanes[name] = &laneStarts{
			times: times[max(0, len(times)-most):], limit: most,
			writeEvery: (most + historyWrites - 1) / historyWrites,
		}
	}
	return s
}

// HasStart reports whether a start is recorded, which the queue then counts already.
func (l *Lanes) HasStart(lane string, at time.Time) bool { return l.startHistory.has(lane, at) }

func (s *startHistory) has(lane string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[lane]
	return l != nil && slices.ContainsFunc(l.times, at.Equal)
}

// Started records a start before its work begins: a start that then fails counts too.
func (l *Lanes) Started(lane string, at time.Time) { l.startHistory.add(lane, at) }

func (s *startHistory) add(lane string, at time.Time) {
	l := s.lanes[lane]
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.times) >= 2*l.limit { // not on each start, which would move all times each time
		l.times = slices.Delete(l.times, 0, len(l.times)-l.limit)
	}
	l.times = append(l.times, at)
	if l.unwritten++; l.unwritten >= l.writeEvery {
		s.writeLocked(lane, l)
	}
}

// SaveStarts writes the starts that are not written yet.
func (l *Lanes) SaveStarts() { l.startHistory.save() }

func (s *startHistory) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.lanes {
		if l.unwritten > 0 {
			s.writeLocked(name, l)
		}
	}
}

func (s *startHistory) writeLocked(lane string, l *laneStarts) {
	l.unwritten = 0
	if err := s.owner.Lanes.SetTimes(lane, statefs.LaneStarts, l.times[max(0, len(l.times)-l.limit):]); err != nil {
		s.logger.Warn("starts of a lane not recorded; after a restart it may exceed its rate",
			"lane", lane, "error", err)
	}
}
