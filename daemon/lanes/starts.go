package lanes

import (
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// startHistory records the start times of lanes with a rate limit, so that a restart does not let
// them exceed it. Such lanes start rarely; other lanes record nothing.
type startHistory struct {
	mu    sync.Mutex
	lanes map[string]*laneStarts // the map never changes after restoreStarts
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

// restoreStarts reads the starts of earlier daemons and gives them to the queue.
func (l *Lanes) restoreStarts() {
	l.starts.lanes = make(map[string]*laneStarts)
	for name, lane := range l.byName {
		set := lane.config
		most := max(set.Starts, 0)
		if set.Gap > 0 {
			most = max(most, 1)
		}
		if most == 0 {
			continue
		}
		most = min(most, statefs.MaxLaneTimes)
		times := l.config.Owner.Lanes.Times(name, statefs.LaneStarts)
		starts := &laneStarts{
			times: times[max(0, len(times)-most):], limit: most,
			writeEvery: (most + historyWrites - 1) / historyWrites,
		}
		l.starts.lanes[name] = starts
		l.config.Queue.RestoreStarts(name, starts.times)
	}
}

// HasStart reports whether a start is recorded, which the queue then counts already.
func (l *Lanes) HasStart(lane string, at time.Time) bool {
	l.starts.mu.Lock()
	defer l.starts.mu.Unlock()
	s := l.starts.lanes[lane]
	return s != nil && slices.ContainsFunc(s.times, at.Equal)
}

// Started records a start before its work begins: a start that then fails counts too.
func (l *Lanes) Started(lane string, at time.Time) {
	s := l.starts.lanes[lane]
	if s == nil {
		return
	}
	l.starts.mu.Lock()
	defer l.starts.mu.Unlock()
	if len(s.times) >= 2*s.limit { // not on each start, which would move all times each time
		s.times = slices.Delete(s.times, 0, len(s.times)-s.limit)
	}
	s.times = append(s.times, at)
	if s.unwritten++; s.unwritten >= s.writeEvery {
		l.writeStartsLocked(lane, s)
	}
}

// SaveStarts writes the starts that are not written yet.
func (l *Lanes) SaveStarts() {
	l.starts.mu.Lock()
	defer l.starts.mu.Unlock()
	for name, s := range l.starts.lanes {
		if s.unwritten > 0 {
			l.writeStartsLocked(name, s)
		}
	}
}

func (l *Lanes) writeStartsLocked(lane string, s *laneStarts) {
	s.unwritten = 0
	if err := l.config.Owner.Lanes.SetTimes(lane, statefs.LaneStarts, s.times[max(0, len(s.times)-s.limit):]); err != nil {
		l.config.Logger.Warn("starts of a lane not recorded; after a restart it may exceed its rate",
			"lane", lane, "error", err)
	}
}
