package daemon

import (
	"cmp"
	"slices"

	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// noLane is the lane of an optional step that shares the lane of its operation and takes limits of
// its own.
const noLane = ""

// stepPlaces tells which places an optional step uses: the shared ones of its operation, its own,
// or both.
type stepPlaces struct{ shared, own bool }

// hasSharedPlaces reports whether an optional step of op uses the places of op.
func (op *operation) hasSharedPlaces() bool {
	if op.activeState == nil {
		return false
	}
	for _, s := range op.optionalSteps {
		if s.shared {
			return true
		}
	}
	return false
}

// itemOfOptionalStep returns the queue item of an optional step. While its operation holds places,
// a step without a lane of its own shares them. An operation that is finishing optional steps keeps
// its places only as long as a step uses them; otherwise it would hold places while it waits.
func itemOfOptionalStep(op *operation, at *steps.Step) (item queue.Item, p stepPlaces) {
	rec := op.rec
	p.shared = (at.Lane == "" || at.Lane == rec.Lane) && (op.run != nil || op.hasSharedPlaces())
	lane, limits := rec.LaneAndLimitsFor(at)
	lane = cmp.Or(lane, statefs.DefaultLane)
	if p.shared {
		lane = noLane
	}
	if op.run != nil || op.hasSharedPlaces() {
		limits = slices.DeleteFunc(slices.Clone(limits), func(name string) bool { return slices.Contains(rec.Limits, name) })
	}
	p.own = !p.shared || len(limits) > 0
	return queue.Item{
		ID: op.id().Part(at.Name), Lane: lane, Limits: limits, Priority: rec.Priority, Since: rec.Since(),
		Sequence: op.id().Sequence(),
	}, p
}

// tryAdmitStep queues an optional step for the places that it needs, and reports whether it may
// start.
func (a *admission) tryAdmitStep(op *operation, at *steps.Step) (p stepPlaces, may bool) {
	item, p := itemOfOptionalStep(op, at)
	if !p.own {
		return p, true
	}
	a.mu.Lock()
	if _, ok := a.queue.Held(item.ID); !ok {
		if _, waits := a.queue.Why(item.ID, a.now()); !waits {
			a.queue.Enqueue(item)
			if op.waitingSteps == nil {
				op.waitingSteps = make(map[string]bool)
			}
			op.waitingSteps[at.Name] = true
		}
	}
	wanted := a.admitReadyLocked()
	_, may = a.queue.Held(item.ID)
	a.admittedLocked(item.ID)
	delete(a.admitted, item.ID)
	a.releaseReservationLocked(item.ID)
	a.mu.Unlock()
	if may {
		delete(op.waitingSteps, at.Name)
	}
	a.notify(wanted, op.id())
	return p, may
}

// holdStep takes the places of an optional step that an earlier daemon started.
func (a *admission) holdStep(op *operation, at *steps.Step) stepPlaces {
	item, p := itemOfOptionalStep(op, at)
	if p.own {
		a.mu.Lock()
		a.queue.Hold(item)
		a.mu.Unlock()
	}
	return p
}

// releaseStep releases the places that an optional step holds or waits for.
func (a *admission) releaseStep(op *operation, name string) {
	delete(op.waitingSteps, name)
	id := op.id().Part(name)
	a.mu.Lock()
	delete(a.admitted, id)
	a.releaseReservationLocked(id)
	a.notifyReleaseLocked(id)
	a.queue.Remove(id)
	wanted := a.admitReadyLocked()
	a.mu.Unlock()
	a.notify(wanted, statefs.ID{})
}

// releaseWaitingSteps removes the waiting optional steps of an operation from the queue.
func (a *admission) releaseWaitingSteps(op *operation) {
	if op.activeState == nil {
		return
	}
	for name := range op.waitingSteps {
		a.releaseStep(op, name)
	}
}
