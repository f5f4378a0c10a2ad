package queue

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/indexheap"
	"github.com/jobdir/jobdir/statefs"
)

// class is all items of a lane with the same limits. Apart from keys, a condition that blocks one item blocks
// all.
type class struct {
	lane    *lane
	limits  []*limit             // by name
	free    line                 // items without a key
	lines   indexheap.Heap[line] // lines of free keys, best place first
	waiting int
	held    int
}

// blocker is why no item of a class may start.
type blocker struct {
	reason statefs.WaitReason
	quota  *quota    // the full or unknown lane or limit
	until  time.Time // when the block ends by itself
}

// blocker returns what blocks all items of the class; its reason is statefs.WaitsToStart if nothing does.
func (c *class) blocker(now time.Time) blocker {
	l := c.lane
	switch {
	case !l.known:
		return blocker{reason: statefs.WaitsUnknownLane, quota: &l.quota}
	case l.set.Paused:
		return blocker{reason: statefs.WaitsPausedLane, quota: &l.quota}
	case l.full():
		return blocker{reason: statefs.WaitsForLane, quota: &l.quota}
	}
	for _, limit := range c.limits {
		switch {
		case !limit.known:
			return blocker{reason: statefs.WaitsUnknownLimit, quota: &limit.quota}
		case limit.full():
			return blocker{reason: statefs.WaitsForLimit, quota: &limit.quota}
		}
	}
	if until := l.rate.until(&l.set); until.After(now) {
		return blocker{reason: statefs.WaitsForRate, quota: &l.quota, until: until}
	}
	return blocker{reason: statefs.WaitsToStart}
}

func (c *class) open(now time.Time) bool { return c.blocker(now).reason == statefs.WaitsToStart }

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
	c := &class{lane: l, lines: indexheap.New(
		func(a, b *line) bool { return a.key.best.before(b.key.best) }, func(l *line) *int32 { return &l.index },
	)}
	c.free = line{class: c, waiting: tree{order: inFree}}
	for _, name := range limits {
		limit := q.limit(name)
		limit.classes++
		c.limits = append(c.limits, limit)
	}
	l.classes = append(l.classes, c)
	q.classes = append(q.classes, c)
	return c
}

// forgetClass drops an empty class, and its lane and limits if they are unset and no other class uses them.
func (q *Queue) forgetClass(c *class) {
	if c.waiting > 0 || c.held > 0 {
		return
	}
	same := func(o *class) bool { return o == c }
	q.classes = slices.DeleteFunc(q.classes, same)
	c.lane.classes = slices.DeleteFunc(c.lane.classes, same)
	if !c.lane.known && len(c.lane.classes) == 0 {
		delete(q.lanes, c.lane.name)
	}
	for _, limit := range c.limits {
		if limit.classes--; !limit.known && limit.classes == 0 {
			delete(q.limits, limit.name)
		}
	}
}
