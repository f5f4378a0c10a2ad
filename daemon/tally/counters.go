package tally

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Counters counts the operations of a daemon. The zero value is ready to use and safe for concurrent use.
type Counters struct {
	mu     sync.Mutex
	states map[statefs.State]int
	lanes  map[string]*lane
}

type lane struct {
	states      map[statefs.State]int
	queued      map[int64]int // by the second since which they are queued
	waits, runs Window
	counter     LaneCounter
}

// LaneCounter counts the operations of a lane. There is one for each lane.
type LaneCounter struct {
	counters *Counters
	lane     *lane
}

// LaneCounter returns the counter of a lane.
func (t *Counters) LaneCounter(name string) *LaneCounter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.lane(name).counter
}

// Move moves an operation from one state to another; "" means that the operation is new or gone.
func (c *LaneCounter) Move(from, to statefs.State) { c.MoveTo(c, from, to) }

// MoveTo does the same as Move for an operation that also changes its lane.
func (c *LaneCounter) MoveTo(next *LaneCounter, from, to statefs.State) {
	if from == to && c == next {
		return
	}
	t := c.counters
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.states == nil {
		t.states = make(map[statefs.State]int)
	}
	for _, of := range []struct{ out, in map[statefs.State]int }{{t.states, t.states}, {c.lane.states, next.lane.states}} {
		if from != "" {
			if of.out[from]--; of.out[from] == 0 {
				delete(of.out, from)
			}
		}
		if to != "" {
			of.in[to]++
		}
	}
}

// Queue counts an operation as queued since a time. It does not replace Move.
func (c *LaneCounter) Queue(since time.Time) { c.queue(since, 1) }

// Unqueue reverts a Queue with the same time.
func (c *LaneCounter) Unqueue(since time.Time) { c.queue(since, -1) }

func (c *LaneCounter) queue(since time.Time, by int) {
	c.counters.mu.Lock()
	defer c.counters.mu.Unlock()
	l := c.lane
	if l.queued == nil {
		l.queued = make(map[int64]int)
	}
	if l.queued[since.Unix()] += by; l.queued[since.Unix()] == 0 {
		delete(l.queued, since.Unix())
	}
}

// AddWait records how long an operation of a lane was queued when it began to run.
func (t *Counters) AddWait(name string, wait time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lane(name).waits.Add(wait, now)
}

// AddRun records the duration of the last run of an operation, without pauses, when the operation ended.
func (t *Counters) AddRun(name string, work time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lane(name).runs.Add(work, now)
}

func (t *Counters) lane(name string) *lane {
	name = cmp.Or(name, statefs.DefaultLane)
	l := t.lanes[name]
	if l == nil {
		if t.lanes == nil {
			t.lanes = make(map[string]*lane)
		}
		l = &lane{states: make(map[statefs.State]int)}
		l.counter = LaneCounter{t, l}
		t.lanes[name] = l
	}
	return l
}

// States returns the number of operations in each state.
func (t *Counters) States() map[statefs.State]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[statefs.State]int, len(t.states))
	maps.Copy(out, t.states)
	return out
}

// Count returns the number of operations in any of some states.
func (t *Counters) Count(states ...statefs.State) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, state := range states {
		n += t.states[state]
	}
	return n
}

// Lanes returns the statistics of each lane that ever had an operation, by name, and of all lanes together.
func (t *Counters) Lanes(now time.Time) (lanes []api.LaneStats, all api.LaneStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waited, worked histogram
	for _, name := range slices.Sorted(maps.Keys(t.lanes)) {
		l := t.lanes[name]
		ofWaits, ofWorks := l.waits.recent(now), l.runs.recent(now)
		waited.add(&ofWaits)
		worked.add(&ofWorks)
		lane := laneOf(name, l.states, &ofWaits, &ofWorks)
		lane.OldestWait, lane.Ages = l.ages(now)
		lanes = append(lanes, lane)
	}
	all = laneOf("", t.states, &waited, &worked)
	for i := range lanes {
		all.OldestWait = max(all.OldestWait, lanes[i].OldestWait)
		mergeAges(&all.Ages, lanes[i].Ages)
	}
	return lanes, all
}

// ages takes time proportional to the number of different seconds since which operations are queued.
func (l *lane) ages(now time.Time) (oldest api.Seconds, ages api.Ages) {
	ages = api.Ages{}
	for second, count := range l.queued {
		age := max(now.Unix()-second, 0)
		oldest = max(oldest, api.Seconds(age))
		addAge(&ages, time.Duration(age)*time.Second, count)
	}
	return oldest, ages
}

func laneOf(name string, states map[statefs.State]int, waited, worked *histogram) api.LaneStats {
	return api.LaneStats{
		Name: name, States: maps.Clone(states), Running: states[statefs.Running], Queued: states[statefs.Queued],
		Paused:  states[statefs.Paused],
		Waiting: waited.times(), Processing: worked.times(),
	}
}
