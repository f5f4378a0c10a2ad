package tally

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// DefaultLane is the lane of operations that name none.
const DefaultLane = "default"

// Tally counts the operations of a daemon. The zero value is ready to use, by any number of goroutines.
type Tally struct {
	mu     sync.Mutex
	states map[statefs.State]int
	lanes  map[string]*lane
}

type lane struct {
	states         map[statefs.State]int
	queued         map[int64]int // since which second of the clock
	waited, worked Window
	counter        Counter
}

// Counter counts in one lane. It is made once for each lane, so that what holds one of many operations holds a pointer.
type Counter struct {
	tally *Tally
	lane  *lane
}

// Counter returns the counter of a lane.
func (t *Tally) Counter(name string) *Counter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.lane(name).counter
}

// In returns the counter of another lane beside this one, or this one for its own.
func (c *Counter) In(name string) *Counter { return c.tally.Counter(name) }

// Move counts an operation out of one state and into another; "" is for one that comes or goes.
func (c *Counter) Move(from, to statefs.State) { c.MoveTo(c, from, to) }

// MoveTo is Move for an operation that changes its lane as well.
func (c *Counter) MoveTo(next *Counter, from, to statefs.State) {
	if from == to && c == next {
		return
	}
	t := c.tally
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

// Queue counts an operation as queued since a time, Unqueue no longer. Move is told as well.
func (c *Counter) Queue(since time.Time) { c.queue(since, 1) }

// Unqueue is the opposite of Queue, with the same time.
func (c *Counter) Unqueue(since time.Time) { c.queue(since, -1) }

func (c *Counter) queue(since time.Time, by int) {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	l := c.lane
	if l.queued == nil {
		l.queued = make(map[int64]int)
	}
	if l.queued[since.Unix()] += by; l.queued[since.Unix()] == 0 {
		delete(l.queued, since.Unix())
	}
}

// Waited notes how long an operation of a lane was queued when it began to run.
func (t *Tally) Waited(name string, wait time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lane(name).waited.Add(wait, now)
}

// Worked notes how long the last run of an operation worked, without pauses, when the operation ended.
func (t *Tally) Worked(name string, work time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lane(name).worked.Add(work, now)
}

func (t *Tally) lane(name string) *lane {
	name = cmp.Or(name, DefaultLane)
	l := t.lanes[name]
	if l == nil {
		if t.lanes == nil {
			t.lanes = make(map[string]*lane)
		}
		l = &lane{states: make(map[statefs.State]int)}
		l.counter = Counter{t, l}
		t.lanes[name] = l
	}
	return l
}

// States returns how many operations are in each state.
func (t *Tally) States() map[statefs.State]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[statefs.State]int, len(t.states))
	maps.Copy(out, t.states)
	return out
}

// Count returns how many operations are in one of some states.
func (t *Tally) Count(states ...statefs.State) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, state := range states {
		n += t.states[state]
	}
	return n
}

// Lanes returns what is known of each lane that ever had an operation, by name, and of all together.
func (t *Tally) Lanes(now time.Time) (lanes []Lane, all Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waited, worked spread
	for _, name := range slices.Sorted(maps.Keys(t.lanes)) {
		l := t.lanes[name]
		ofWaits, ofWorks := l.waited.recent(now), l.worked.recent(now)
		waited.add(&ofWaits)
		worked.add(&ofWorks)
		lane := laneOf(name, l.states, &ofWaits, &ofWorks)
		lane.OldestWait, lane.Ages = l.ages(now)
		lanes = append(lanes, lane)
	}
	all = laneOf("", t.states, &waited, &worked)
	for i := range lanes {
		all.OldestWait = max(all.OldestWait, lanes[i].OldestWait)
		all.Ages.merge(lanes[i].Ages)
	}
	return lanes, all
}

// ages costs as much as there are different seconds in which what is queued became so.
func (l *lane) ages(now time.Time) (oldest Seconds, ages Ages) {
	ages = Ages{}
	for second, count := range l.queued {
		age := max(now.Unix()-second, 0)
		oldest = max(oldest, Seconds(age))
		ages.add(time.Duration(age)*time.Second, count)
	}
	return oldest, ages
}

func laneOf(name string, states map[statefs.State]int, waited, worked *spread) Lane {
	return Lane{
		Name: name, States: maps.Clone(states), Running: states[statefs.Running], Queued: states[statefs.Queued], Paused: states[statefs.Paused],
		Waiting: waited.times(), Processing: worked.times(),
	}
}
