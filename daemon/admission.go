package daemon

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// admission decides which operations start: the queue decides, and reconciles carry it out.
//
//	reconcile ──place──▶ live.Table ──each change──▶ follow ──▶ queue
//	reconcile ──admit──▶ queue ──▶ the operations that it picks are reconciled again, and start
//
// A reconcile only notes the place of its operation in the table, and the queue has what the table has. So no
// place leaks: in whatever way an operation leaves the running state, its place follows.
//
// The locks are taken in this order: the lock of the table, mu, the lock of the reconcile queue. No system call is made
// under mu, because the table may wait for it. So operations are admitted after the change, under admitting.
type admission struct {
	enqueue  func(statefs.ID) // adds an operation to the reconcile queue
	now      func() time.Time
	onChange func() // called when a waiting reason may have changed
	// onTrial is called with the lock held, when a lane admits its trial operation and when an
	// operation that holds a place in the lane is about to release it.
	onTrial func(lane string)
	// startRecorded reports whether the queue already counts a start of an earlier daemon. It is
	// called with the lock held.
	startRecorded func(lane string, at time.Time) bool
	// reserve reserves descriptors for one more start until done is called, or returns an error if
	// there are too few. It makes system calls.
	reserve func() (done func(), err error)
	logger  *slog.Logger

	admitting struct { // held while operations are admitted; taken before mu
		sync.Mutex
		warnedAt time.Time // when the lack of descriptors was last logged
	}

	changed atomic.Bool // the table has changed the queue since operations were last admitted

	mu       sync.RWMutex // guards the fields below
	queue    *queue.Queue
	open     bool // false until all running operations are known, and after close
	admitted map[statefs.ID]struct{}
	// reservations holds, for each admitted operation that has not opened its descriptors yet, the
	// function that releases its reservation.
	reservations     map[statefs.ID]func()
	lacksDescriptors bool // only a lack of descriptors keeps an operation from starting
	// recheck fires when a rate limit allows the next start, and while descriptors are short: they may become
	// free without any work ending.
	recheck *time.Timer
	// pendingStarts holds the operations that a reconcile is about to start. The channel is closed
	// when that reconcile is done.
	pendingStarts map[statefs.ID]chan struct{}
	expected
	// trialLanes are the lanes that may admit a single operation, the trial. trialIDs are the
	// admitted trials that TakeTrial has not returned yet, by lane.
	trialLanes map[string]bool
	trialIDs   map[string]statefs.ID
}

func newAdmission(c *Config, want func(statefs.ID), now func() time.Time) *admission {
	a := &admission{
		enqueue: want, now: now, queue: queue.New(c.Ageing), admitted: make(map[statefs.ID]struct{}),
		reservations: make(map[statefs.ID]func()), pendingStarts: make(map[statefs.ID]chan struct{}),
		expected: expected{
			arriving: make(map[statefs.ID]int), foreign: make(map[statefs.ID]bool),
			blocked: make(map[statefs.ID]blockedItem),
		},
		trialLanes: make(map[string]bool), trialIDs: make(map[string]statefs.ID), logger: c.Logger,
	}
	a.recheck = time.AfterFunc(time.Hour, func() { a.update(func(*queue.Queue) {}) })
	a.recheck.Stop()
	a.queue.SetLane(statefs.DefaultLane, queue.Lane{Capacity: queue.Unlimited})
	a.queue.SetLane(noLane, queue.Lane{Capacity: queue.Unlimited})
	for name, set := range c.Lanes {
		a.queue.SetLane(name, set.Lane)
	}
	for name, capacity := range c.Limits {
		a.queue.SetLimit(name, capacity)
	}
	return a
}

// tryAdmit lets a queued operation wait in the queue, unless it does, and reports whether it may start.
func (a *admission) tryAdmit(o *operations, op *operation) bool {
	if at := op.shown.Place; at.Standing != decide.Waiting || at.Item.Priority != op.rec.Priority {
		o.place(op, decide.Waiting)
	}
	wanted := a.admitReady()
	a.mu.Lock()
	ok := a.admittedLocked(op.id())
	a.mu.Unlock()
	a.notify(wanted, op.id())
	return ok
}

// follow makes the queue follow a change of the table. Nothing else lets an operation enter the queue,
// move in it or leave it. It is called with the lock of the table held.
func (a *admission) follow(c live.Change) {
	var none live.Snapshot
	before, after := cmp.Or(c.Before, &none), cmp.Or(c.After, &none)
	if before.Place == after.Place && before.List == after.List && before.State != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := cmp.Or(c.After, c.Before).ID
	whole := a.countArrivingLocked(before.List, after.List)
	a.arrived += arrives(after) - arrives(before)
	known := (c.After == nil || after.State != "") && a.forgetForeignLocked(id)
	a.moveLocked(id, before.Place, after.Place, before.List)
	if whole || known {
		a.unblockLocked()
	}
	if c.Before != nil || whole || known { // an operation that only arrives lets no other start
		a.changed.Store(true)
	}
}

// arrives returns 1 for an operation that was submitted and that no reconcile has placed yet, else 0.
func arrives(s *live.Snapshot) int {
	if s.Place.Standing == decide.Arriving && s.State != "" {
		return 1
	}
	return 0
}

// tryStartSubmit takes the places of an operation without a key that starts with its submit, and reports whether it
// may: not if it has to wait. It is called before the table has the operation. Afterwards the table has it as holding
// its places, or dropSubmitted is called.
func (a *admission) tryStartSubmit(item *queue.Item, w submittedStart) bool {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	done, err := a.reserve()
	if err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// A lane with a trial decides by itself which operation that is.
	if !a.open || a.arrived > 0 || a.trialLanes[item.Lane] || !a.queue.TryStart(*item, a.now()) {
		done()
		return false
	}
	a.admitted[item.ID], a.reservations[item.ID] = struct{}{}, done
	a.pendingStarts[item.ID] = make(chan struct{})
	a.submitted.set(item.ID, w)
	return true
}

// dropSubmitted gives up a start with a submit that was not committed. If the table has the operation, it is to be
// withdrawn there too.
func (a *admission) dropSubmitted(id statefs.ID) {
	if _, is := a.submitted.get(id); !is {
		return
	}
	a.submitted.take(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue.UndoStart(id) { // the table does not have it
		a.queue.Remove(id)
		delete(a.admitted, id)
		a.releaseReservationLocked(id)
	}
	a.endPendingLocked(id)
	a.changed.Store(true)
}

// moveLocked changes the place of an operation in the queue. list is the list with which it arrived, if any.
func (a *admission) moveLocked(id statefs.ID, before, after live.Place, list *statefs.ID) {
	if before == after {
		return
	}
	if b, is := a.blocked[id]; is {
		list = b.list
	}
	_, admitted := a.admitted[id]
	delete(a.admitted, id)
	delete(a.blocked, id)
	if after.Standing != decide.Holding {
		a.releaseReservationLocked(id)
		a.notifyReleaseLocked(id)
	}
	switch {
	case after.Item == nil:
		a.queue.Remove(id)
	case after.Standing == decide.Holding:
		a.queue.Hold(*after.Item)
	case after.Standing == decide.Waiting:
		if admitted { // it has not started, and is admitted again by its new priority
			a.queue.UndoStart(id)
		}
		b := blockedItem{after.Item, list}
		if !a.mustWaitLocked(b) {
			a.queue.Enqueue(*after.Item)
			break
		}
		a.blocked[id] = b
		fallthrough
	default:
		item := *after.Item
		if after.Standing == decide.Arriving && item.KeyOrder == queue.BySubmit {
			item.KeyOrder = queue.Arriving
		}
		a.queue.KeepTurn(item)
	}
}

// admit admits what may start since the table has changed.
func (a *admission) admit() {
	if a.changed.Load() {
		a.notify(a.admitReady(), statefs.ID{})
	}
}

// countStart counts a start of an earlier daemon against the rate of a lane, unless it is counted.
func (a *admission) countStart(rec *statefs.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := rec.StartedAt; !a.open && at != nil && !a.startRecorded(laneOf(rec), *at) {
		a.queue.RecordStart(laneOf(rec), *at)
	}
}

// admittedLocked reports whether an operation, or a part of one, may start. If it may, the calling
// reconcile is about to start it, so the operation is noted in pendingStarts.
func (a *admission) admittedLocked(id statefs.ID) bool {
	_, ok := a.admitted[id]
	if whole := id.Whole(); ok && a.pendingStarts[whole] == nil {
		a.pendingStarts[whole] = make(chan struct{})
	}
	return ok
}

// AwaitStarts waits until every start that is pending now has happened or failed.
func (a *admission) AwaitStarts() {
	a.mu.RLock()
	all := slices.Collect(maps.Values(a.pendingStarts))
	a.mu.RUnlock()
	for _, done := range all {
		<-done
	}
}

// frontPriority returns a priority that puts an operation before all others that wait in its lane.
// It returns the operation's own priority if the operation does not wait.
func (a *admission) frontPriority(op *operation) int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if priority, waits := a.queue.FrontPriority(op.id()); waits {
		return priority
	}
	return op.rec.Priority
}

// releaseReservation releases the descriptors reserved for a start: the operation has opened them by now.
func (a *admission) releaseReservation(id statefs.ID) {
	a.mu.Lock()
	a.releaseReservationLocked(id)
	lacked := a.lacksDescriptors
	a.mu.Unlock()
	if lacked {
		a.notify(a.admitReady(), statefs.ID{})
	}
}

// releaseReservationLocked is releaseReservation with the lock held. It admits nothing.
func (a *admission) releaseReservationLocked(id statefs.ID) {
	if done := a.reservations[id]; done != nil {
		delete(a.reservations, id)
		done()
	}
}

// notify enqueues the admitted operations, except the one being reconciled.
func (a *admission) notify(wanted []statefs.ID, except statefs.ID) {
	for _, id := range wanted {
		if id = id.Whole(); id != except {
			a.enqueue(id)
		}
	}
	a.Changed()
}

// enable lets operations start from now on: all running operations are known.
func (a *admission) enable() { a.update(func(*queue.Queue) { a.open = true }) }

// SetLanes adds or changes lanes in one decision. The admission of operations in these lanes that are not about to
// start is undone and decided again, so that nothing starts above a lowered capacity.
func (a *admission) SetLanes(all ...lanes.Change) {
	a.update(func(q *queue.Queue) {
		changed := make(map[string]bool, len(all))
		for _, c := range all {
			changed[c.Lane] = true
			delete(a.trialLanes, c.Lane)
			if c.Trial {
				a.trialLanes[c.Lane] = true
			}
			q.SetLane(c.Lane, c.Config)
		}
		for id := range a.admitted {
			if lane, _ := q.Held(id); changed[lane] && a.pendingStarts[id.Whole()] == nil && q.UndoStart(id) {
				a.releaseReservationLocked(id)
				delete(a.admitted, id)
			}
		}
	})
}

// TakeTrial returns the trial operation that a lane has admitted, once.
func (a *admission) TakeTrial(name string) (statefs.ID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.trialIDs[name]
	delete(a.trialIDs, name)
	return id, ok
}

// TrialEnded reports whether a trial operation has released its place. It returns false until all
// running operations are known.
func (a *admission) TrialEnded(id statefs.ID) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, held := a.queue.Held(id)
	return a.open && !held
}

// RestoreStarts counts the starts of earlier daemons in a lane.
func (a *admission) RestoreStarts(lane string, starts []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range starts {
		a.queue.RecordStart(lane, at)
	}
}

// Changed tells that a waiting reason may have changed.
func (a *admission) Changed() { a.onChange() }

// beginTrialLocked pauses the lane of id if id is the trial operation of that lane.
func (a *admission) beginTrialLocked(id statefs.ID, now time.Time) {
	name, _ := a.queue.Held(id)
	if !a.trialLanes[name] {
		return
	}
	delete(a.trialLanes, name)
	a.trialIDs[name] = id.Whole()
	if s, ok := a.queue.Lane(name, now); ok {
		s.Paused = true
		a.queue.SetLane(name, s.Lane)
	}
	a.onTrial(name)
}

// notifyReleaseLocked calls onTrial if an operation holds places, which it is about to release.
func (a *admission) notifyReleaseLocked(id statefs.ID) {
	if name, held := a.queue.Held(id); held {
		a.onTrial(name)
	}
}

// update changes the queue and admits the operations that may start then.
func (a *admission) update(do func(*queue.Queue)) {
	a.mu.Lock()
	do(a.queue)
	a.mu.Unlock()
	a.notify(a.admitReady(), statefs.ID{})
}

// close stops the admission of operations.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = false
	a.recheck.Stop()
}

// admitReady admits every operation that may start, and returns their IDs.
func (a *admission) admitReady() (wanted []statefs.ID) {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	now, short := a.now(), error(nil)
	a.mu.Lock()
	for short == nil && a.open && a.queue.Ready(now) {
		a.mu.Unlock()
		done, err := a.reserve()
		a.mu.Lock()
		if short = err; short != nil {
			break
		}
		if id, ok := a.admitNextLocked(now, done); ok {
			wanted = append(wanted, id)
		}
	}
	a.changed.Store(false)
	a.lacksDescriptors = short != nil
	a.setRecheckLocked(now)
	waiting := a.queue.Waiting()
	a.mu.Unlock()
	warned := &a.admitting.warnedAt
	if t := time.Now(); short != nil && (warned.IsZero() || t.Sub(*warned) >= warnInterval) {
		*warned = t
		a.logger.Warn("queued operations wait for free file descriptors", "waiting", waiting, "error", short)
	}
	return wanted
}

// warnInterval is the shortest time between two log lines about starts that wait for descriptors.
const warnInterval = time.Minute

// admitNextLocked admits the next operation, for which descriptors are reserved until done is called.
// It returns false if none may start any more.
func (a *admission) admitNextLocked(now time.Time, done func()) (id statefs.ID, ok bool) {
	if a.open {
		id, ok = a.queue.Next(now)
	}
	if !ok {
		done()
		return id, false
	}
	a.releaseReservationLocked(id)
	a.reservations[id] = done
	a.admitted[id] = struct{}{}
	if len(a.trialLanes) > 0 {
		a.beginTrialLocked(id, now)
	}
	return id, true
}

// setRecheckLocked sets the timer for the next time at which an operation may start without another change.
func (a *admission) setRecheckLocked(now time.Time) {
	if !a.open {
		return
	}
	at, ok := a.queue.Wake(now)
	wait := at.Sub(now)
	if a.lacksDescriptors && (!ok || wait > retryInterval) {
		wait, ok = retryInterval, true
	}
	if ok {
		a.recheck.Reset(wait)
	} else {
		a.recheck.Stop()
	}
}

// waitReason returns why an operation waits and whether descriptors are short. waits is false if
// the operation does not wait.
func (a *admission) waitReason(id statefs.ID) (why statefs.Waiting, short, waits bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if b, is := a.blocked[id]; is {
		return statefs.Waiting{Reason: statefs.WaitsToStart, Lane: b.Lane, Since: &b.Since}, false, true
	}
	why, waits = a.queue.Why(id, a.now())
	return why, a.lacksDescriptors, waits
}

// firstWaiting returns the operations at the head of each lane, see queue.Queue.Heads.
func (a *admission) firstWaiting() []statefs.ID {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queue.Heads()
}

// Lanes returns the state of all lanes, by name.
func (a *admission) Lanes() []queue.LaneStats {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.DeleteFunc(a.queue.Lanes(a.now()), func(l queue.LaneStats) bool { return l.Name == noLane })
}

// Limits returns the state of all limits, by name.
func (a *admission) Limits() []statefs.LimitStatus {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queue.Limits()
}

// noLane is the lane of an optional step that shares the lane of its operation and takes limits of its own.
const noLane = ""

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

// tryAdmitStep queues an optional step for the places that it needs, and reports whether it may start.
func (a *admission) tryAdmitStep(op *operation, at *steps.Step) (p stepPlaces, may bool) {
	item, p := itemOfOptionalStep(op, at)
	if !p.own {
		return p, true
	}
	a.mu.Lock()
	if _, ok := a.queue.Held(item.ID); !ok {
		if _, waits := a.queue.Why(item.ID, a.now()); !waits {
			a.queue.Enqueue(item)
			op.waitingSteps[at.Name] = true
		}
	}
	a.mu.Unlock()
	wanted := a.admitReady()
	a.mu.Lock()
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
	a.update(func(q *queue.Queue) {
		delete(a.admitted, id)
		a.releaseReservationLocked(id)
		a.notifyReleaseLocked(id)
		q.Remove(id)
	})
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
