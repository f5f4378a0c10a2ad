package daemon

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// starts note when the lanes that may start only so often have started something, so that a restart does not let them start more. A lane
// with a rate starts seldom, and others note nothing.
type starts struct {
	owner  *statefs.Owner
	logger *slog.Logger

	mu    sync.Mutex
	lanes map[string]*laneStarts // the map never changes
}

// laneStarts are the last starts of a lane.
type laneStarts struct {
	times     []time.Time
	most      int // so many count
	every     int // after how many the note is written
	unwritten int
}

// notedParts is how many times a note is written while as many starts come as count: each one up to this number. So each costs a few KiB,
// however many count.
const notedParts = 64

func newStarts(c *Config, logger *slog.Logger) *starts {
	s := &starts{owner: c.Owner, logger: logger, lanes: make(map[string]*laneStarts)}
	for name, set := range c.Lanes {
		most := max(set.Starts, 0)
		if set.Gap > 0 {
			most = max(most, 1)
		}
		if most == 0 {
			continue
		}
		most = min(most, statefs.MostLaneTimes)
		times := c.Owner.LaneTimes(name, statefs.LaneStarts)
		s.lanes[name] = &laneStarts{times: times[max(0, len(times)-most):], most: most, every: (most + notedParts - 1) / notedParts}
	}
	return s
}

// recall tells the queue of the starts that were noted. Nothing runs yet.
func (s *starts) recall(a *admission) {
	a.mu.Lock() // before that of s, as when it asks what is noted
	defer a.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.lanes {
		for _, at := range l.times {
			a.queue.Started(name, at)
		}
	}
	a.noted = s.has
}

// has reports whether a start is noted. It is asked before anything starts.
func (s *starts) has(lane string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[lane]
	return l != nil && slices.ContainsFunc(l.times, at.Equal)
}

// note notes a start, before its work begins: a start that then fails counts too.
func (s *starts) note(lane string, at time.Time) {
	l := s.lanes[lane]
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.times) >= 2*l.most { // not each time: that would move all of them for each start
		l.times = slices.Delete(l.times, 0, len(l.times)-l.most)
	}
	l.times = append(l.times, at)
	if l.unwritten++; l.unwritten >= l.every {
		s.writeLocked(lane, l)
	}
}

// close writes down what was not yet.
func (s *starts) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.lanes {
		if l.unwritten > 0 {
			s.writeLocked(name, l)
		}
	}
}

func (s *starts) writeLocked(lane string, l *laneStarts) {
	l.unwritten = 0
	if err := s.owner.SetLaneTimes(lane, statefs.LaneStarts, l.times[max(0, len(l.times)-l.most):]); err != nil {
		s.logger.Warn("the starts of a lane cannot be written down; after a restart it may start more than its rate", "lane", lane, "error", err)
	}
}
