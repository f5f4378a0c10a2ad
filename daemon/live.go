package daemon

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/tally"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/watch"
)

// operations are the operations that the daemon manages. Each change that readers outside the reconcile
// see goes through it.
type operations struct {
	live     live.Table[*operation]
	waiters  effect.Waiters
	onChange []func(statefs.ID)
}

// OnChange calls f after each change of an operation or of its marker, also of a foreign one. f must not block, and
// must not call the daemon. OnChange is called before Run.
func (o *operations) OnChange(f func(statefs.ID)) {
	o.live.Subscribe(func(c live.Change) { f(cmp.Or(c.After, c.Before).ID) })
	o.onChange = append(o.onChange, f)
}

// filesChanged reports a change that the table does not show: another program made, moved or removed a marker.
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
	if op.state != state {
		op.publishedReason.Store(unpublished)
	}
	op.state = state
	o.publishRecord(op)
}

// publishRecord replaces the snapshot of a managed operation after its record has changed.
func (o *operations) publishRecord(op *operation) {
	if o.manages(op.ident) {
		op.shown = op.shown.Next(op.rec, op.state)
		o.live.Put(op.shown)
	}
}

// committed hands the record of a managed operation on to the subscribers of the table: all of it is durable.
func (o *operations) committed(op *operation) {
	if o.manages(op.ident) {
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

// noteCarriedOut notes which requests are carried out although their effect could not be made durable.
// It is called at the end of a reconcile.
func (o *operations) noteCarriedOut(op *operation) {
	var set statefs.NameSet
	for _, r := range op.doneRequests {
		if r.Action == statefs.Pause && op.state == statefs.Paused ||
			r.Action == statefs.Resume && op.state != statefs.Paused && (op.run == nil || !op.run.PauseRequested()) {
			set |= statefs.Name{Action: r.Action}.Bit()
		}
	}
	if r := op.awaiting[decide.EndWork]; r != nil && op.workEnded() && (op.run == nil || op.run.EndedByCancel()) {
		set |= statefs.Name{Action: statefs.Cancel}.Bit() | statefs.Name{Action: statefs.ForceCancel}.Bit()
	}
	if set != op.shown.CarriedOut {
		o.change(op, func(s *live.Snapshot) { s.CarriedOut = set })
	}
}

// CarriedOut reports whether a request of an operation is carried out and not durable yet, as on a full disk.
func (o *operations) CarriedOut(id statefs.ID, ask statefs.Action) bool {
	_, s := o.live.Get(id)
	return s != nil && s.CarriedOut&statefs.Name{Action: ask}.Bit() != 0
}

// Manages reports whether the daemon manages an operation.
func (o *operations) Manages(id statefs.ID) bool { return o.manages(id) }

// AwaitRequest registers a client that is about to make a request and waits for its outcome.
func (c *core) AwaitRequest(id statefs.ID, ask statefs.Action) *effect.Waiter {
	return c.waiters.Await(id, ask, c.reconcileQueue.enqueue)
}

// settleRequests answers the clients that wait for a request of a managed operation when nothing of it is pending and
// its effect is durable. A request without a file that was never taken is withdrawn. A cancel is answered by the end.
func (c *core) settleRequests(op *operation) {
	c.waiters.Settle(op.id(), func(r effect.Request) (o effect.Outcome, final bool) {
		if !c.manages(op.id()) {
			return o, false // it has ended; cleanUp answers
		}
		o = effect.Outcome{State: op.state, TookEffect: tookEffect(r, op.state)}
		pending := slices.ContainsFunc(append(op.unsettled(), op.doneRequests...),
			func(other *request) bool { return other.Action == r.Action && !other.dropped })
		if !r.Made || pending || o.TookEffect && op.unsaved || r.Action.Spec().Ends && op.awaiting[decide.EndWork] != nil {
			return o, false
		}
		sight, err := c.owner.Observe(op.id(), statefs.MarkerBit(op.state)|statefs.Name{Action: r.Action}.Bit())
		return o, err == nil && len(sight.States) == 1 && len(sight.Requests) == 0
	})
}

// settleUnmanaged answers the clients that wait for a request of an operation that the daemon does not manage. It has
// ended, or another program carries the request out, which may remove the file before it acts: only the marker shows
// what it did.
func (c *core) settleUnmanaged(id statefs.ID) {
	c.waiters.Settle(id, func(r effect.Request) (o effect.Outcome, final bool) {
		sight, err := c.owner.ObserveAll(id)
		if err != nil {
			return o, false
		}
		if len(sight.States) > 0 {
			o = effect.Outcome{State: sight.States[0], TookEffect: r.Action.LeadsTo(sight.States[0])}
			return o, r.Made && !slices.Contains(sight.Requests, r.Action) && !r.Action.AppliesIn(o.State)
		}
		rec, err := c.owner.ReadDurableEnd(id)
		if rec != nil {
			o = outcomeOfEnd(r, rec)
		}
		return o, err == nil
	})
}

// outcomeOfEnd returns what became of a request when the operation has ended.
func outcomeOfEnd(r effect.Request, rec *statefs.Record) effect.Outcome {
	took, spec := tookEffect(r, rec.Status), r.Action.Spec()
	if n := len(rec.Transitions); spec.Ends && n > 0 {
		took = slices.Contains(spec.Causes, rec.Transitions[n-1].Cause) || r.Action.Cancels() && rec.Status == statefs.Cancelled
	}
	return effect.Outcome{TookEffect: took, State: rec.Status}
}

// tookEffect reports whether a request was carried out and no later change took its effect back.
func tookEffect(r effect.Request, state statefs.State) bool {
	switch r.Action { //nolint:exhaustive // the record keeps the effect of the others
	case statefs.Pause:
		return r.CarriedOut && state == statefs.Paused
	case statefs.Resume:
		return r.CarriedOut && state != statefs.Paused && state != statefs.Cancelled
	}
	return r.CarriedOut
}

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

// LiveIndex returns the up-to-date rows of the operations that the daemon manages, and separately
// the IDs whose markers may differ from them right now, with what is known of each. The row of an
// ID that the daemon does not manage is nil; a state beside it is that of the marker. ok is false
// while only a listing of jobs/ shows what is live: until the daemon is ready, and while the folder
// is scanned instead of watched.
func (d *Daemon) LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, ok bool) {
	if !isClosed(d.ready) || d.markers.dir.Mode().Name == watch.ModeScan {
		return nil, nil, false
	}
	ids, ok := d.collectUnsettled()
	for id, state := range ids {
		l := history.Live{ID: id, State: state}
		if _, s := d.live.Get(id); s != nil {
			l = rowOf(s)
		}
		unsettled = append(unsettled, l)
	}
	return d.live.Rows(), unsettled, ok
}

// collectUnsettled collects the IDs that an event reported and no reconcile has handled, and the IDs
// that a reconcile left unsettled. An ID moves through these places in the order in which they are
// read here, so none is missed. ok is false if events were lost, until everything has been
// reconciled.
func (d *Daemon) collectUnsettled() (ids map[statefs.ID]statefs.State, ok bool) {
	changed := make(map[statefs.ID]statefs.NameSet)
	d.watchMu.Lock()
	waiting, lost := d.dir.Peek()
	d.watchMu.Unlock()
	for _, key := range waiting {
		changed[key.id] |= d.toObserve(key)
	}
	d.reconcileQueue.addTo(changed)
	ids = make(map[statefs.ID]statefs.State)
	d.live.Read(func(get func(statefs.ID) *live.Snapshot) {
		for id, names := range changed {
			if s := get(id); s != nil && names&statefs.AllMarkers&^statefs.MarkerBit(s.State) == 0 {
				delete(changed, id)
			}
		}
	})
	for id, names := range changed {
		if !d.shows(id, names) {
			ids[id] = ""
		}
	}
	for id, state := range d.unsettledIDs.all() {
		if _, changing := ids[id]; !changing { // a change may have replaced the state that was seen
			ids[id] = state
		}
	}
	return ids, !lost
}

// shows reports whether lists are right about an ID if only these of its names may have changed: none of them
// exists, except the marker of its state. After a flood of submits nearly all pending reconciles are of such
// operations.
func (d *Daemon) shows(id statefs.ID, names statefs.NameSet) bool {
	if names&statefs.AllNames == statefs.AllNames {
		return false
	}
	markers := names & statefs.AllMarkers
	if _, s := d.live.Get(id); s != nil {
		markers &^= statefs.MarkerBit(s.State)
	}
	seen, err := d.owner.Observe(id, markers)
	return err == nil && len(seen.States)+len(seen.Irregular) == 0
}

// Stats returns the statistics of all configured lanes and of all lanes that ever had an operation.
// It does not visit the operations either.
func (d *Daemon) Stats() api.LiveStats {
	s := api.LiveStats{At: d.owner.Now(), WindowSeconds: tally.WindowSeconds}
	s.Lanes, s.All = d.live.Counters().Lanes(s.At)
	for _, set := range d.admission.Lanes() {
		i, known := slices.BinarySearchFunc(s.Lanes, set.Name,
			func(l api.LaneStats, name string) int { return strings.Compare(l.Name, name) })
		if !known {
			s.Lanes = slices.Insert(s.Lanes, i, api.LaneStats{Name: set.Name, States: map[statefs.State]int{}, Ages: api.Ages{}})
		}
		s.Lanes[i].Held = set.Paused
		if set.Known && set.Capacity >= 0 {
			s.Lanes[i].Capacity = &set.Capacity
		}
	}
	return s
}
