package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
)

// admission lets operations start: the queue decides, the looks carry it out.
//
//	look: queued ──enter──▶ waits ──the queue picks it──▶ admitted, another look ──▶ begins, and holds its places
//	look: running, paused with its process ──hold                     look: everything else ──leave
//
// The marker is the authority for where an operation stands, and a look brings the queue in line with it. So no place is ever leaked:
// whatever way an operation takes out of running, a look sees it.
type admission struct {
	want    func(statefs.ID) // has an operation looked at
	now     func() time.Time
	changed func() // called when something may wait for another reason than before; may be nil
	// trial is called with the lock when a lane has let its one operation through, or one that runs there gives its place back; may be nil.
	trial func(lane string)
	// noted says that the queue knows of a start of an earlier daemon already. It is called with the lock; may be nil.
	noted func(lane string, at time.Time) bool

	mu       sync.RWMutex // guards what follows
	queue    *queue.Queue
	open     bool // false until all that runs already is known
	admitted map[statefs.ID]struct{}
	timer    *time.Timer // at the time when a rate allows the next start; nil: there is none to wait for
	// trials are the lanes that let one operation through and no more; tried is who that was, once it is known.
	trials map[string]bool
	tried  map[string]statefs.ID
}

func newAdmission(c *Config, want func(statefs.ID), now func() time.Time) *admission {
	a := &admission{
		want: want, now: now, queue: queue.New(queue.Options{Ageing: c.Ageing}), admitted: make(map[statefs.ID]struct{}),
		trials: make(map[string]bool), tried: make(map[string]statefs.ID),
	}
	a.queue.SetLane(DefaultLane, queue.Lane{Capacity: queue.Unlimited})
	a.queue.SetLane(noLane, queue.Lane{Capacity: queue.Unlimited})
	for name, set := range c.Lanes {
		a.queue.SetLane(name, set.Lane)
	}
	for name, capacity := range c.Limits {
		a.queue.SetLimit(name, capacity)
	}
	return a
}

// item is an operation as the queue sees it.
func item(op *operation) queue.Item {
	rec, since := op.rec, eligibleSince(op.rec)
	if op.eligible.After(since) {
		since = op.eligible
	}
	_, limits := rec.Takes()
	return queue.Item{
		ID: rec.ID, Lane: laneOf(rec), Limits: limits, Key: rec.Key, KeyByPriority: rec.KeyOrder == "priority",
		Priority: rec.Priority, Since: since,
	}
}

// eligibleSince is when an operation came into the queue. One whose run was cut off has not lost its place.
func eligibleSince(rec *statefs.Record) time.Time {
	for _, t := range slices.Backward(rec.Transitions) {
		if t.To == statefs.Queued && t.Cause != statefs.CauseInterrupted && t.Cause != statefs.CauseRescued && t.Cause != statefs.CauseNextStep {
			return t.At
		}
	}
	return rec.CreatedAt
}

// laneOf is the lane in which an operation waits or works now, which may be one of its step.
func laneOf(rec *statefs.Record) string {
	if lane, _ := rec.Takes(); lane != "" {
		return lane
	}
	return DefaultLane // of an older version
}

// enter has a queued operation wait, unless it does, and reports whether it may begin.
func (a *admission) enter(op *operation) bool {
	a.mu.Lock()
	if _, ok := a.admitted[op.id()]; ok {
		a.mu.Unlock()
		return true
	}
	if op.stands != waits || op.standsWith != int32(op.rec.Priority) {
		op.stands, op.standsWith = waits, int32(op.rec.Priority)
		a.givesBackLocked(op.id())
		a.queue.Wait(item(op))
	}
	wanted := a.startLocked()
	_, ok := a.admitted[op.id()]
	a.mu.Unlock()
	a.tell(wanted, op.id())
	return ok
}

// front is a priority with which an operation stands before all others that wait in its lane, its own when it does not wait.
func (a *admission) front(op *operation) int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if priority, waits := a.queue.Front(op.id()); waits {
		return priority
	}
	return op.rec.Priority
}

// settle brings the queue in line with an operation after a look. One that is queued is the affair of enter.
func (a *admission) settle(op *operation, managed bool) {
	stands := outside
	switch {
	case !managed:
	case op.state == statefs.Queued && op.run == nil:
		return
	case op.state == statefs.Running, op.run != nil, op.sharesPlaces():
		stands = holds
	}
	if stands == op.stands {
		return
	}
	left := op.stands != outside && stands == outside
	op.stands = stands
	a.mu.Lock()
	delete(a.admitted, op.id())
	if stands == holds {
		a.queue.Hold(item(op))
		if at := op.rec.StartedAt; !a.open && at != nil && (a.noted == nil || !a.noted(laneOf(op.rec), *at)) {
			a.queue.Started(laneOf(op.rec), *at) // by an earlier daemon: the rate counts it
		}
	} else {
		a.givesBackLocked(op.id())
		a.queue.Leave(op.id())
	}
	var wanted []statefs.ID
	if left {
		wanted = a.startLocked()
	}
	a.mu.Unlock()
	a.tell(wanted, op.id())
}

// tell has those looked at that may begin, except the one that is being looked at.
func (a *admission) tell(wanted []statefs.ID, except statefs.ID) {
	for _, id := range wanted {
		if id = id.Whole(); id != except {
			a.want(id)
		}
	}
	if a.changed != nil {
		a.changed()
	}
}

// begin lets operations start from now on: all that runs already has been seen.
func (a *admission) begin() { a.change(func(*queue.Queue) { a.open = true }) }

// setLane makes a lane known, or changes it. With one it starts a single operation and pauses then; letThrough says which.
func (a *admission) setLane(name string, set queue.Lane, one bool) {
	a.change(func(q *queue.Queue) {
		delete(a.trials, name)
		if one {
			a.trials[name] = true
		}
		q.SetLane(name, set)
	})
}

// letThrough returns the operation that a lane has let through since it was set to start a single one. It says so once.
func (a *admission) letThrough(name string) (statefs.ID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.tried[name]
	delete(a.tried, name)
	return id, ok
}

// lost reports whether an operation that was let through has given its place back; before everything is known it has not.
func (a *admission) lost(id statefs.ID) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, held := a.queue.Held(id)
	return a.open && !held
}

// tryLocked pauses a lane that was to start a single operation, which is id.
func (a *admission) tryLocked(id statefs.ID, now time.Time) {
	name, _ := a.queue.Held(id)
	if !a.trials[name] {
		return
	}
	delete(a.trials, name)
	a.tried[name] = id.Whole()
	if s, ok := a.queue.Lane(name, now); ok {
		s.Paused = true
		a.queue.SetLane(name, s.Lane)
	}
	if a.trial != nil {
		a.trial(name)
	}
}

// givesBackLocked says that an operation, if it holds its places, is about to give them back.
func (a *admission) givesBackLocked(id statefs.ID) {
	if name, held := a.queue.Held(id); held && a.trial != nil {
		a.trial(name)
	}
}

// change changes something, and starts what may start then.
func (a *admission) change(do func(*queue.Queue)) {
	a.mu.Lock()
	do(a.queue)
	wanted := a.startLocked()
	a.mu.Unlock()
	a.tell(wanted, statefs.ID{})
}

// close starts nothing any more.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = false
	if a.timer != nil {
		a.timer.Stop()
	}
}

// startLocked admits all that may start, and returns it.
func (a *admission) startLocked() (wanted []statefs.ID) {
	if !a.open {
		return nil
	}
	now := a.now()
	for {
		id, ok := a.queue.Next(now)
		if !ok {
			break
		}
		a.admitted[id] = struct{}{}
		wanted = append(wanted, id)
		if len(a.trials) > 0 {
			a.tryLocked(id, now)
		}
	}
	at, ok := a.queue.Wake(now)
	switch {
	case !ok && a.timer != nil:
		a.timer.Stop()
	case !ok:
	case a.timer == nil:
		a.timer = time.AfterFunc(at.Sub(now), func() { a.change(func(*queue.Queue) {}) })
	default:
		a.timer.Reset(at.Sub(now))
	}
	return wanted
}

// why says why an operation waits; false: it does not.
func (a *admission) why(id statefs.ID) (queue.Waiting, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queue.Why(id, a.now())
}

// first returns the operations that stand first, see queue.Queue.First.
func (a *admission) first() []statefs.ID {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queue.First()
}

// Lanes returns how all lanes stand, by name.
func (d *Daemon) Lanes() []queue.LaneStats {
	d.admission.mu.RLock()
	defer d.admission.mu.RUnlock()
	return slices.DeleteFunc(d.admission.queue.Lanes(d.admission.now()), func(l queue.LaneStats) bool { return l.Name == noLane })
}

// Limits returns how all limits stand, by name.
func (d *Daemon) Limits() []queue.LimitStats {
	d.admission.mu.RLock()
	defer d.admission.mu.RUnlock()
	return d.admission.queue.Limits()
}

// standing is where an operation stands in the queue, as far as its look knows: it may have been admitted since.
type standing uint8

const (
	outside standing = iota
	waits
	holds
)
