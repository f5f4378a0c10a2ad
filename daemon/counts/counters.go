package counts

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
}

// Place is where an operation counts. A place without a state is that of an operation that is new or gone.
type Place struct {
	Lane  string
	State statefs.State
	Since time.Time // when it entered its state
}

// Move moves an operation from one place to another.
func (t *Counters) Move(from, to Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.states == nil {
		t.states = make(map[statefs.State]int)
	}
	t.count(from, -1)
	t.count(to, 1)
}

func (t *Counters) count(at Place, by int) {
	if at.State == "" {
		return
	}
	l := t.lane(at.Lane)
	add(t.states, at.State, by)
	add(l.states, at.State, by)
	if at.State == statefs.Queued {
		add(l.queued, at.Since.Unix(), by)
	}
}

func add[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] == 0 {
		delete(counts, key)
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
		l = &lane{states: make(map[statefs.State]int), queued: make(map[int64]int)}
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

// Lanes returns the statistics of each lane that ever had an operation, by name, and of all lanes together. It
// takes time proportional to the number of different seconds since which operations are queued.
func (t *Counters) Lanes(now time.Time) (lanes []api.LaneStats, all api.LaneStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waited, worked histogram
	ages, oldest := api.Ages{}, api.Seconds(0)
	for _, name := range slices.Sorted(maps.Keys(t.lanes)) {
		l := t.lanes[name]
		ofWaits, ofWorks := l.waits.recent(now), l.runs.recent(now)
		waited.add(&ofWaits)
		worked.add(&ofWorks)
		lane := laneOf(name, l.states, &ofWaits, &ofWorks)
		lane.Ages = api.Ages{}
		for second, count := range l.queued {
			age := max(now.Unix()-second, 0)
			lane.OldestWait = max(lane.OldestWait, api.Seconds(age))
			addAge(&lane.Ages, age, count)
			addAge(&ages, age, count)
		}
		oldest = max(oldest, lane.OldestWait)
		lanes = append(lanes, lane)
	}
	all = laneOf("", t.states, &waited, &worked)
	all.OldestWait, all.Ages = oldest, ages
	return lanes, all
}

func laneOf(name string, states map[statefs.State]int, waited, worked *histogram) api.LaneStats {
	return api.LaneStats{
		Name: name, States: maps.Clone(states), Running: states[statefs.Running], Queued: states[statefs.Queued],
		Paused:  states[statefs.Paused],
		Waiting: waited.times(), Processing: worked.times(),
	}
}
