package queue

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Unlimited is a capacity without bound; every other negative number is too.
const Unlimited = -1

// Lane holds the settings of a lane.
type Lane struct {
	Capacity int  // how many items may be held at once; 0: none, negative: any number
	Paused   bool // nothing starts; held items stay held
	Starts   int  // at most this many starts in any period of length Per; 0: any number
	Per      time.Duration
	Gap      time.Duration // minimum time between two starts; 0: none
}

// quota is the common part of a lane and a limit: the places and their holders.
type quota struct {
	name     string
	known    bool
	capacity int
	holders  []*hold // longest holder first; its length is the number of occupied places
}

func (r *quota) full() bool { return r.capacity >= 0 && len(r.holders) >= r.capacity }

// longestHolder returns the item that has held a place longest; the zero ID if no item does.
func (r *quota) longestHolder() statefs.ID {
	if len(r.holders) == 0 {
		return statefs.ID{}
	}
	return r.holders[0].id
}

type lane struct {
	quota
	set     Lane
	rate    rate
	waiting tree
	classes []*class
}

type limit struct {
	quota
	classes int // how many classes use it
}

// SetLane adds a lane or changes its settings. A lower capacity ends nothing: nothing starts until enough
// items have left.
func (q *Queue) SetLane(name string, set Lane) {
	l := q.lane(name)
	l.known, l.capacity, l.set = true, set.Capacity, set
}

// SetLimit adds a limit or changes its capacity, which has the meaning of Lane.Capacity.
func (q *Queue) SetLimit(name string, capacity int) {
	l := q.limit(name)
	l.known, l.capacity = true, capacity
}

// RecordStart counts a start from before a restart against the rate of a lane. Starts may be recorded in any
// order.
func (q *Queue) RecordStart(name string, at time.Time) {
	if l := q.lanes[name]; l != nil {
		l.rate.add(at, &l.set)
	}
}

// lane returns the lane with a name; the lane may be unknown.
func (q *Queue) lane(name string) *lane {
	l := q.lanes[name]
	if l == nil {
		l = &lane{quota: quota{name: name}, waiting: tree{order: inLane}}
		q.lanes[name] = l
	}
	return l
}

func (q *Queue) limit(name string) *limit {
	l := q.limits[name]
	if l == nil {
		l = &limit{quota: quota{name: name}}
		q.limits[name] = l
	}
	return l
}
