package queue

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// oracle implements the rule of the package comment with lists and linear searches.
type oracle struct {
	ageing  time.Duration
	lanes   map[string]Lane
	limits  map[string]int
	waiting []Item
	kept    []Item
	held    []Item // who has been held longest first
	started map[string][]time.Time
}

func (o *oracle) remove(id statefs.ID) {
	is := func(i Item) bool { return i.ID == id }
	o.waiting, o.kept, o.held = slices.DeleteFunc(o.waiting, is), slices.DeleteFunc(o.kept, is),
		slices.DeleteFunc(o.held, is)
}

// priority compares by priority alone, or by what is left of it with ageing; below 0: a is first.
func (o *oracle) priority(a, b Item) int {
	if o.ageing > 0 {
		worth := func(i Item) time.Time { return i.Since.Add(-time.Duration(i.Priority) * o.ageing) }
		return worth(a).Compare(worth(b))
	}
	return b.Priority - a.Priority
}

// moreUrgent is the order within a key: priority, sequence.
func (o *oracle) moreUrgent(a, b Item) bool {
	if c := o.priority(a, b); c != 0 {
		return c < 0
	}
	return submitted(a, b)
}

// before is the order of places: priority, time of eligibility, sequence.
func (o *oracle) before(a, b Item) bool {
	if c := o.priority(a, b); c != 0 {
		return c < 0
	}
	if c := a.Since.Compare(b.Since); c != 0 {
		return c < 0
	}
	return submitted(a, b)
}

func submitted(a, b Item) bool {
	if a.Sequence != b.Sequence {
		return a.Sequence < b.Sequence
	}
	return a.ID.String() < b.ID.String()
}

// holders are those who hold something.
func (o *oracle) holders(of func(Item) bool) (ids []statefs.ID) {
	for _, i := range o.held {
		if of(i) {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// hindered is why an item could not start if it had no key.
func (o *oracle) hindered(i Item, now time.Time) statefs.Waiting {
	set, ok := o.lanes[i.Lane]
	inLane := o.holders(func(h Item) bool { return h.Lane == i.Lane })
	switch {
	case !ok:
		return statefs.Waiting{Reason: statefs.WaitsUnknownLane}
	case set.Paused:
		return statefs.Waiting{Reason: statefs.WaitsPausedLane}
	case set.Capacity >= 0 && len(inLane) >= set.Capacity:
		return statefs.Waiting{Reason: statefs.WaitsForLane, HeldBy: first(inLane)}
	}
	for _, name := range slices.Sorted(slices.Values(i.Limits)) {
		capacity, ok := o.limits[name]
		having := o.holders(func(h Item) bool { return slices.Contains(h.Limits, name) })
		switch {
		case !ok:
			return statefs.Waiting{Reason: statefs.WaitsUnknownLimit, Limit: name}
		case capacity >= 0 && len(having) >= capacity:
			return statefs.Waiting{Reason: statefs.WaitsForLimit, Limit: name, HeldBy: first(having)}
		}
	}
	var until time.Time
	for _, at := range o.started[i.Lane] {
		// A start now would be one too many of the stretch that began with this one.
		since := 0
		for _, other := range o.started[i.Lane] {
			if !other.Before(at) {
				since++
			}
		}
		if end := at.Add(set.Per); set.Starts > 0 && since >= set.Starts && end.After(until) {
			until = end
		}
		if end := at.Add(set.Gap); set.Gap > 0 && end.After(until) {
			until = end
		}
	}
	if until.After(now) {
		return statefs.Waiting{Reason: statefs.WaitsForRate, Until: &until}
	}
	return statefs.Waiting{Reason: statefs.WaitsToStart}
}

func first(ids []statefs.ID) statefs.ID {
	if len(ids) == 0 {
		return statefs.ID{}
	}
	return ids[0]
}

// clampFuture takes starts that lie ahead, because the clock was set back, as made now, in lanes that are in use.
func (o *oracle) turnBack(now time.Time) {
	for name, starts := range o.started {
		if slices.ContainsFunc(slices.Concat(o.waiting, o.held), func(i Item) bool { return i.Lane == name }) {
			for n, at := range starts {
				if at.After(now) {
					starts[n] = now
				}
			}
		}
	}
}

// why returns the expected result of Why.
func (o *oracle) why(i Item, now time.Time) statefs.Waiting {
	w := o.hindered(i, now)
	w.Lane, w.Since, w.Position = i.Lane, &i.Since, 1
	for _, other := range o.waiting {
		if other.Lane == i.Lane && o.before(other, i) {
			w.Position++
		}
	}
	if w.Reason != statefs.WaitsToStart || i.Key == "" {
		return w
	}
	if having := o.holders(func(h Item) bool { return h.Key == i.Key }); len(having) > 0 {
		w.Reason, w.HeldBy = statefs.WaitsForKey, having[0]
		return w
	}
	ahead, _ := o.turn(i, now)
	if ahead.ID != i.ID {
		w.Reason, w.HeldBy = statefs.WaitsForKey, ahead.ID
	}
	return w
}

// place is the item whose place counts for i: the most urgent of its key.
func (o *oracle) place(i Item) Item {
	best := i
	for _, other := range o.waiting {
		if i.Key != "" && other.Key == i.Key && o.moreUrgent(other, best) {
			best = other
		}
	}
	return best
}

// next is who should start.
func (o *oracle) next(now time.Time) (next Item, ok bool) {
	for _, i := range o.waiting {
		if o.why(i, now).Reason == statefs.WaitsToStart && (!ok || o.before(o.place(i), o.place(next))) {
			next, ok = i, true
		}
	}
	return next, ok
}

// wake is when the next one may start by time alone.
func (o *oracle) wake(now time.Time) (at time.Time, ok bool) {
	for _, i := range o.waiting {
		w := o.hindered(i, now)
		if w.Reason != statefs.WaitsForRate || o.heldUp(i, now) {
			continue
		}
		if !ok || w.Until.Before(at) {
			at, ok = *w.Until, true
		}
	}
	return at, ok
}

// turn returns the item with the key of i whose turn it is, or i itself if it could be; strict means that
// items that cannot start count too.
func (o *oracle) turn(i Item, now time.Time) (ahead Item, strict bool) {
	of := func(list []Item) []Item {
		return slices.DeleteFunc(slices.Clone(list), func(other Item) bool { return other.Key != i.Key })
	}
	waiting := of(o.waiting)
	ahead = i
	order := slices.MinFunc(slices.Concat(waiting, of(o.kept)),
		func(a, b Item) int { return int(a.KeyOrder) - int(b.KeyOrder) }).KeyOrder
	strict = order != AnyOrder
	before := func(a, b Item) bool {
		first := func(i Item) bool { return i.Begun && i.KeyOrder != AnyOrder }
		switch {
		case first(a) != first(b):
			return first(a)
		case order == ByPriority && !first(a):
			return o.moreUrgent(a, b)
		}
		return submitted(a, b)
	}
	for _, other := range waiting {
		if before(other, ahead) && (strict || o.hindered(other, now).Reason == statefs.WaitsToStart) {
			ahead = other
		}
	}
	for _, other := range of(o.kept) {
		if before(other, ahead) {
			ahead = other
		}
	}
	isArriving := func(i Item) bool { return i.KeyOrder == Arriving }
	if kept := of(o.kept); order == ByPriority && slices.ContainsFunc(kept, isArriving) {
		order = BySubmit
		ahead = kept[0]
		for _, other := range kept {
			if before(other, ahead) {
				ahead = other
			}
		}
	}
	return ahead, strict
}

// heldUp reports whether an item could not start even if its lane had room, because of its key.
func (o *oracle) heldUp(i Item, now time.Time) bool {
	if i.Key == "" {
		return false
	}
	ahead, strict := o.turn(i, now)
	return len(o.holders(func(h Item) bool { return h.Key == i.Key })) > 0 || strict && ahead.ID != i.ID
}
