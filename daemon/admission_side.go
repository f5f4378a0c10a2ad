package daemon

import (
	"slices"

	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// noLane is where an optional step stands that takes limits of its own beside the lane that its operation holds.
const noLane = ""

// places say what an optional step works in: those that its operation holds, some of its own, or both.
type places struct{ shares, apart bool }

// sharesPlaces reports whether an optional step works in the places of its operation.
func (op *operation) sharesPlaces() bool {
	if op.attention == nil {
		return false
	}
	for _, s := range op.sides {
		if s.shares {
			return true
		}
	}
	return false
}

// sideItem is an optional step as the queue sees it. As long as its operation holds its places a step without a lane of its own works in those, beside the
// others. An operation that trails, and for which nothing works in its places any more, holds none: it would wait with something in hand.
func sideItem(op *operation, at *steps.Step) (item queue.Item, p places) {
	rec := op.rec
	p.shares = (at.Lane == "" || at.Lane == rec.Lane) && (op.run != nil || op.sharesPlaces())
	lane, limits := rec.TakesFor(at)
	if lane == "" {
		lane = DefaultLane
	}
	if p.shares {
		lane = noLane
	}
	if op.run != nil || op.sharesPlaces() {
		limits = slices.DeleteFunc(slices.Clone(limits), func(name string) bool { return slices.Contains(rec.Limits, name) })
	}
	p.apart = !p.shares || len(limits) > 0
	return queue.Item{
		ID: op.id().Part(at.Name), Lane: lane, Limits: limits, Priority: rec.Priority, Since: rec.Since(), Sequence: op.id().Sequence(),
	}, p
}

// enterSide has an optional step wait for the places that it needs, and reports whether it may begin.
func (a *admission) enterSide(op *operation, at *steps.Step) (p places, may bool) {
	item, p := sideItem(op, at)
	if !p.apart {
		return p, true
	}
	a.mu.Lock()
	if _, ok := a.queue.Held(item.ID); !ok {
		if _, waits := a.queue.Why(item.ID, a.now()); !waits {
			a.queue.Wait(item)
			if op.sidesWait == nil {
				op.sidesWait = make(map[string]bool)
			}
			op.sidesWait[at.Name] = true
		}
	}
	wanted := a.startLocked()
	_, may = a.queue.Held(item.ID)
	delete(a.admitted, item.ID)
	a.mu.Unlock()
	if may {
		delete(op.sidesWait, at.Name)
	}
	a.tell(wanted, op.id())
	return p, may
}

// holdSide is for an optional step that an earlier daemon has begun.
func (a *admission) holdSide(op *operation, at *steps.Step) places {
	item, p := sideItem(op, at)
	if p.apart {
		a.mu.Lock()
		a.queue.Hold(item)
		a.mu.Unlock()
	}
	return p
}

// leaveSide gives back what an optional step holds, and what it waits for.
func (a *admission) leaveSide(op *operation, name string) {
	delete(op.sidesWait, name)
	id := op.id().Part(name)
	a.mu.Lock()
	delete(a.admitted, id)
	a.givesBackLocked(id)
	a.queue.Leave(id)
	wanted := a.startLocked()
	a.mu.Unlock()
	a.tell(wanted, statefs.ID{})
}

// leaveSides has the optional steps of an operation wait no longer.
func (a *admission) leaveSides(op *operation) {
	if op.attention == nil {
		return
	}
	for name := range op.sidesWait {
		a.leaveSide(op, name)
	}
}
