package queue

import (
	"slices"
	"time"
)

// class is all items of the same lane with the same limits. Apart from their keys, what hinders one hinders all.
type class struct {
	lane    *lane
	limits  []*limit // by name
	free    line     // those without a key
	lines   lineHeap // the lines of keys that nobody holds, the best place first
	waiting int
	held    int
}

// hindrance is why nothing of a class may start.
type hindrance struct {
	reason Reason
	room   *room     // what is full or not known
	until  time.Time // when it ends by itself
}

// hindrance returns what hinders all of the class; the reason is Starting when there is nothing.
func (c *class) hindrance(now time.Time) hindrance {
	l := c.lane
	switch {
	case !l.known:
		return hindrance{reason: UnknownLane, room: &l.room}
	case l.set.Paused:
		return hindrance{reason: LanePaused, room: &l.room}
	case l.full():
		return hindrance{reason: LaneFull, room: &l.room}
	}
	for _, limit := range c.limits {
		switch {
		case !limit.known:
			return hindrance{reason: UnknownLimit, room: &limit.room}
		case limit.full():
			return hindrance{reason: Limit, room: &limit.room}
		}
	}
	if until := l.rate.until(&l.set); until.After(now) {
		return hindrance{reason: Rate, room: &l.room, until: until}
	}
	return hindrance{reason: Starting}
}

func (c *class) open(now time.Time) bool { return c.hindrance(now).reason == Starting }

// class returns the class of a lane and limits.
func (q *Queue) class(laneName string, limits []string) *class {
	if len(limits) > 1 {
		limits = slices.Clone(limits)
		slices.Sort(limits)
		limits = slices.Compact(limits)
	}
	l := q.lane(laneName)
	for _, c := range l.classes {
		if slices.EqualFunc(c.limits, limits, func(l *limit, name string) bool { return l.name == name }) {
			return c
		}
	}
	c := &class{lane: l}
	c.free = line{class: c, waiting: tree{order: inFree}, at: withdrawn}
	for _, name := range limits {
		limit := q.limit(name)
		limit.classes++
		c.limits = append(c.limits, limit)
	}
	l.classes = append(l.classes, c)
	q.classes = append(q.classes, c)
	return c
}

// forgetClass drops a class that nobody is in, and with it the lane and the limits that only it knew.
func (q *Queue) forgetClass(c *class) {
	if c.waiting > 0 || c.held > 0 {
		return
	}
	same := func(o *class) bool { return o == c }
	q.classes = slices.DeleteFunc(q.classes, same)
	c.lane.classes = slices.DeleteFunc(c.lane.classes, same)
	q.forgetLane(c.lane)
	for _, limit := range c.limits {
		limit.classes--
		q.forgetLimit(limit)
	}
}
