package queue

import (
	"container/list"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Unlimited is the capacity that never runs out; so is every negative number.
const Unlimited = -1

// Lane says what a lane allows.
type Lane struct {
	Capacity int           // how many may be held at once; 0: none, negative: any number
	Paused   bool          // nothing starts; what is held stays
	Starts   int           // at most so many starts in any stretch of time as long as Per; 0: any number
	Per      time.Duration // see Starts
	Gap      time.Duration // at least so much time from one start to the next; 0: none
}

// room is what a lane and a limit have in common: places that are held.
type room struct {
	name     string
	known    bool
	capacity int
	holders  list.List // of *hold, who has held longest first; its length is what counts
}

func (r *room) full() bool { return r.capacity >= 0 && r.holders.Len() >= r.capacity }

// longest is who has held a place longest, the zero ID when nobody holds one.
func (r *room) longest() statefs.ID {
	if e := r.holders.Front(); e != nil {
		if h, ok := e.Value.(*hold); ok {
			return h.id
		}
	}
	return statefs.ID{}
}

type lane struct {
	room
	set     Lane
	rate    rate
	waiting tree
	classes []*class
}

type limit struct {
	room
	classes int // how many mention it
}

// SetLane makes a lane known, or changes it. Lowering the capacity ends nothing: nothing starts until enough have left.
func (q *Queue) SetLane(name string, set Lane) {
	l := q.lane(name)
	l.known, l.capacity, l.set = true, set.Capacity, set
}

// RemoveLane forgets a lane. What is held there stays, what waits there does so until the lane is set again.
func (q *Queue) RemoveLane(name string) {
	if l := q.lanes[name]; l != nil {
		l.known, l.set, l.rate = false, Lane{}, rate{}
		q.forgetLane(l)
	}
}

// SetLimit makes a limit known, or changes its capacity, which is that of a Lane.
func (q *Queue) SetLimit(name string, capacity int) {
	l := q.limit(name)
	l.known, l.capacity = true, capacity
}

// RemoveLimit forgets a limit, as RemoveLane does with a lane.
func (q *Queue) RemoveLimit(name string) {
	if l := q.limits[name]; l != nil {
		l.known = false
		q.forgetLimit(l)
	}
}

// Started counts a start against the rate of a lane that Next did not make: one from before a restart. Starts may come in any order.
func (q *Queue) Started(name string, at time.Time) {
	if l := q.lanes[name]; l != nil {
		l.rate.add(at, &l.set)
	}
}

// lane returns the lane of that name, which may be unknown.
func (q *Queue) lane(name string) *lane {
	l := q.lanes[name]
	if l == nil {
		l = &lane{room: room{name: name}, waiting: tree{order: inLane}}
		q.lanes[name] = l
	}
	return l
}

func (q *Queue) limit(name string) *limit {
	l := q.limits[name]
	if l == nil {
		l = &limit{room: room{name: name}}
		q.limits[name] = l
	}
	return l
}

func (q *Queue) forgetLane(l *lane) {
	if !l.known && len(l.classes) == 0 {
		delete(q.lanes, l.name)
	}
}

func (q *Queue) forgetLimit(l *limit) {
	if !l.known && l.classes == 0 {
		delete(q.limits, l.name)
	}
}
