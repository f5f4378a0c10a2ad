package daemon

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// operations are the operations that the daemon manages. Each change that readers outside the reconcile
// see goes through it.
type operations struct {
	live     live.Table[*operation]
	waiters  effect.Waiters
	onChange []func(statefs.ID)
}

// OnChange calls f after each change of an operation or of its marker, also of a foreign one, and when a request is
// gone. f must not block, and must not call the daemon. OnChange is called before Run.
func (o *operations) OnChange(f func(statefs.ID)) {
	o.live.Subscribe(func(c live.Change) { f(cmp.Or(c.After, c.Before).ID) })
	o.onChange = append(o.onChange, f)
}

// filesChanged reports a change that the table does not show: another program made, moved or removed a marker, or a
// request is gone.
func (o *operations) filesChanged(id statefs.ID) {
	for _, f := range o.onChange {
		f(id)
	}
}

// operation returns a managed operation, nil if the daemon does not manage the ID.
func (o *operations) operation(id statefs.ID) *operation {
	op, _ := o.live.Get(id)
	return op
}

func (o *operations) manages(id statefs.ID) bool { return o.operation(id) != nil }

// allOperations returns all managed operations.
func (o *operations) allOperations() []*operation {
	all := o.live.All()
	ops := make([]*operation, 0, len(all))
	for _, s := range all {
		if op := o.operation(s.ID); op != nil {
			ops = append(ops, op)
		}
	}
	return ops
}

// stateOf returns the state of a managed operation, "" for any other.
func (o *operations) stateOf(id statefs.ID) statefs.State {
	if _, s := o.live.Get(id); s != nil {
		return s.State
	}
	return ""
}

// setState notes the state of the marker.
func (o *operations) setState(op *operation, state statefs.State) {
	op.enter(state)
	o.publishRecord(op)
}

// publishRecord replaces the snapshot of a managed operation after its record has changed.
func (o *operations) publishRecord(op *operation) {
	if op.managed {
		op.shown = op.shown.Next(op.rec, op.state)
		o.live.Put(op.shown)
	}
}

// committed hands the record of a managed operation on to the subscribers of the table: all of it is durable.
func (o *operations) committed(op *operation) {
	if op.managed {
		op.shown = op.shown.Next(op.rec, op.state).Committed(op.rec)
		o.live.Commit(op.shown, op.rec)
	}
}

// change replaces the snapshot of a managed operation by a changed copy.
func (o *operations) change(op *operation, change func(*live.Snapshot)) {
	next := *op.shown
	change(&next)
	op.shown = &next
	o.live.Put(op.shown)
}

// setAwaited notes which parent a queued operation waits for; nil if it waits for none.
func (o *operations) setAwaited(op *operation, parent *statefs.ID) {
	if before := op.shown.Awaits; before != parent && (before == nil || parent == nil || *before != *parent) {
		o.change(op, func(s *live.Snapshot) { s.Awaits = parent })
	}
}

// place notes the place of an operation in the queue.
func (o *operations) place(op *operation, standing decide.Standing) {
	o.change(op, func(s *live.Snapshot) { s.Place, s.List = placeOf(op, standing), nil })
}

func placeOf(op *operation, standing decide.Standing) live.Place {
	if standing == decide.Outside || standing == decide.Arriving && op.rec.Key == "" {
		return live.Place{Standing: standing}
	}
	item := itemOfRecord(op.rec)
	switch before := op.shown.Place; {
	case standing == decide.Waiting && before.Standing == decide.Waiting: // only its priority is another one
		item.Since = before.Item.Since
	case op.eligibleAt.After(item.Since):
		item.Since = op.eligibleAt
	}
	return live.Place{Standing: standing, Item: item}
}

// standing returns the standing of an operation that follows from its state.
func (op *operation) standing() decide.Standing {
	return decide.StandingOf(decide.Snapshot{State: op.state, Working: op.run != nil}, op.shown.Place.Standing,
		op.hasSharedPlaces(), op.rec.Key, keyOrders[op.rec.KeyOrder])
}

// settlePlace notes the place of an operation after its reconcile, with the error of the reconcile. An
// operation that only arrives keeps its turn until a reconcile succeeds.
func (o *operations) settlePlace(op *operation, err error) {
	before, standing := op.shown.Place, op.standing()
	switch {
	case standing == decide.Outside && before.Standing == decide.Arriving && err != nil:
	case standing != before.Standing, standing == decide.KeepsTurn && before.Item.Priority != op.rec.Priority:
		o.place(op, standing)
	}
}

// keyOrders maps the key orders of the catalog to those of the queue. A record of an older version
// names none, which means BySubmit.
var keyOrders = map[string]queue.KeyOrder{
	string(catalog.KeyBySubmit):   queue.BySubmit,
	string(catalog.KeyByPriority): queue.ByPriority,
	string(catalog.KeyAnyOrder):   queue.AnyOrder,
}

func itemOfRecord(rec *statefs.Record) *queue.Item {
	_, limits := rec.LaneAndLimits()
	return &queue.Item{
		ID: rec.ID, Lane: unique.Make(laneOf(rec)).Value(), Limits: limits, Key: rec.Key, KeyOrder: keyOrders[rec.KeyOrder],
		Begun: rec.Starts > 0, Priority: rec.Priority, Since: eligibleSince(rec),
	}
}

// eligibleSince returns when an operation entered the queue. An interrupted run and the next step
// keep the earlier time, so the operation keeps its position.
func eligibleSince(rec *statefs.Record) time.Time {
	for _, t := range slices.Backward(rec.Transitions) {
		if t.To == statefs.Queued && t.Cause != statefs.CauseInterrupted && t.Cause != statefs.CauseRescued &&
			t.Cause != statefs.CauseNextStep {
			return t.At
		}
	}
	return rec.CreatedAt
}

// laneOf returns the lane in which an operation waits or runs now. A step may have its own lane.
func laneOf(rec *statefs.Record) string {
	lane, _ := rec.LaneAndLimits()
	return cmp.Or(lane, statefs.DefaultLane) // a record of an older version names none
}

// noteNames notes which names an operation may have besides its marker. It is called at the end of a reconcile.
func (o *operations) noteNames(op *operation) {
	names := op.extraNames
	for _, r := range append(op.unsettled(), op.doneRequests...) {
		names |= statefs.Name{Action: r.Action}.Bit()
	}
	if names != op.shown.Names {
		o.change(op, func(s *live.Snapshot) { s.Names = names })
	}
}

// Manages reports whether the daemon manages an operation.
func (o *operations) Manages(id statefs.ID) bool { return o.manages(id) }

// States returns how many operations the daemon manages, by state. It does not visit the
// operations.
func (o *operations) States() map[statefs.State]int { return o.live.Counters().States() }

// Live returns the operations that the daemon manages, for lists.
func (o *operations) Live() []history.Live {
	all := o.live.All()
	out := make([]history.Live, len(all))
	for i, s := range all {
		out[i] = rowOf(s)
	}
	return out
}

func rowOf(s *live.Snapshot) history.Live { return history.Live{ID: s.ID, State: s.State, Row: s.Row} }

// fingerprint identifies a waiting reason, without keeping the reason of every waiting operation.
// Positions and holders are not part of it: they change too often to be published.
type fingerprint = uint64

// Special values instead of the fingerprint of the last published reason.
const (
	unpublished      fingerprint = 0 // none published in the present state
	reasonChanged    fingerprint = 1 // a bit: the next reconcile compares the reason with the published one
	publishedEarlier fingerprint = 2 // published by an earlier daemon
	firstFingerprint fingerprint = 4
)

// waitFollowers tracks the operations whose every waiting reason is published, not only the first.
// For all others the reason is computed on request, so a change of the queue costs nothing for a
// hundred thousand waiting operations.
//
//	the queue has changed ──after a delay──▶ compare ──not the published reason──▶ reconcile
//	──▶ an event, and a line of a log that is read
//
// Tracked are the operations that a client follows, by their stream or by their events, and the
// heads: the first operation of each lane, and the first of those in it that need the same limits
// (queue.Queue.Heads).
type waitFollowers struct {
	mu   sync.Mutex
	byID map[statefs.ID]*followedOperation

	compareFollowed, compareFirst *time.Timer // the timers of the next comparison; nil if none is due
}

// followedOperation is an operation that a client follows, or followed while it waited: its log
// does not repeat the reason for a client that returns.
type followedOperation struct {
	streams, eventReaders int         // the readers of its stream, and of its events only
	logged                fingerprint // of the reason that was last logged in its present state
	wake                  []*func()   // callbacks of stream readers that have seen no log yet
}

func (f *followedOperation) isUnfollowed() bool { return f.streams == 0 && f.eventReaders == 0 }

func (w *waitFollowers) unfollow(id statefs.ID, reader bool, wake *func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.byID[id]
	if reader {
		f.eventReaders--
	} else {
		f.streams--
		f.wake = slices.DeleteFunc(f.wake, func(other *func()) bool { return other == wake })
	}
	if f.isUnfollowed() && f.logged == unpublished {
		delete(w.byID, id)
	}
}

// forgetLogged makes the log of an operation that leaves its state name the reason again when it waits again.
func (w *waitFollowers) forgetLogged(c live.Change) {
	if c.Before == nil || c.After != nil && c.After.State == c.Before.State {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.byID[c.Before.ID]; f != nil {
		if f.logged = unpublished; f.isUnfollowed() {
			delete(w.byID, c.Before.ID)
		}
	}
}

// of returns a copy of what is kept of a followed operation.
func (w *waitFollowers) of(id statefs.ID) (f followedOperation, followed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.byID[id]; known != nil {
		return *known, true
	}
	return f, false
}

// setLogged records the reason that was logged, and wakes the readers that wait for the log.
func (w *waitFollowers) setLogged(id statefs.ID, now fingerprint) {
	w.mu.Lock()
	if f := w.byID[id]; f != nil {
		f.logged = now
	}
	w.mu.Unlock()
	w.logCreated(id)
}

// logCreated wakes the readers that wait for the log of an operation to be created.
func (w *waitFollowers) logCreated(id statefs.ID) {
	w.mu.Lock()
	var readers []*func()
	if f := w.byID[id]; f != nil {
		readers, f.wake = f.wake, nil
	}
	w.mu.Unlock()
	for _, wake := range readers {
		(*wake)()
	}
}

// close stops the timers.
func (w *waitFollowers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range []*time.Timer{w.compareFollowed, w.compareFirst} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// lockedMap is a map with a lock. The zero value is empty.
type lockedMap[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

func (l *lockedMap[K, V]) get(key K) (value V, has bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, has = l.m[key]
	return value, has
}

func (l *lockedMap[K, V]) set(key K, value V) { l.update(key, func(V) V { return value }) }

// update replaces the value of key, which is zero if the map does not have it, and returns the new value.
func (l *lockedMap[K, V]) update(key K, next func(V) V) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = make(map[K]V)
	}
	value := next(l.m[key])
	l.m[key] = value
	return value
}

// take removes the value of key and returns it.
func (l *lockedMap[K, V]) take(key K) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	value := l.m[key]
	delete(l.m, key)
	return value
}

func (l *lockedMap[K, V]) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.m)
}

// all returns a copy of the map.
func (l *lockedMap[K, V]) all() map[K]V {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.m)
}
