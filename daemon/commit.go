package daemon

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/statefs"
)

// This file has every write to the marker, the record and the requests of an operation. The order of the
// writes of a transition is a column of its table, statefs.Order.

// write is one write of a commit.
type write string

const (
	writeRecord  write = "record"
	writeEnd     write = "end" // the terminal record, durable at once
	moveMarker   write = "marker"
	removeMarker write = "no marker"
	syncFiles    write = "sync" // makes the writes before it durable

	amendEnd      write = "amended end"   // the record of an operation that has ended, durable at once
	restoreMarker write = "marker again"  // creates the marker of state to, if it is missing
	renameBack    write = "marker back"   // renames file to the marker of state to
	removeExtra   write = "extra marker"  // removes a marker that is not the state of the operation
	touchMarker   write = "marker's time" // so that programs that watch the operation read it again
)

// change is what a commit writes: the record, and the marker's move between two states.
type change struct {
	rec      *statefs.Record
	from, to statefs.State
	file     string // what a person renamed a marker to
}

// errMoved means that another process renamed a marker between the observation and the action.
var errMoved = errors.New("another process moved the marker")

// committer writes the files of operations. All its methods are safe for concurrent use, one call at a time
// for each operation.
type committer struct{ owner *statefs.Owner }

// commit makes the writes of a change in the given order and stops at the first error. It returns errMoved
// if a person moved or removed the marker. A record that is not that of another state needs no move of the marker.
func (c committer) commit(id statefs.ID, what change, writes ...write) error {
	for _, w := range writes {
		var err error
		switch w {
		case writeRecord:
			err = c.owner.WriteRecord(what.rec)
		case writeEnd:
			err = c.owner.WriteEnd(what.rec)
		case moveMarker:
			err = c.owner.Move(id, what.from, what.to)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				err = errMoved
			}
		case removeMarker:
			if err = c.owner.RemoveMarker(id, what.from); errors.Is(err, fs.ErrNotExist) {
				err = errMoved
			}
		case syncFiles:
			err = c.owner.Sync(id)
		case amendEnd:
			err = c.owner.AmendRecord(what.rec)
		case restoreMarker:
			err = c.owner.RestoreMarker(id, what.to, what.rec.CreatedAt)
		case renameBack:
			err = c.owner.RestoreName(what.file, id, what.to)
		case removeExtra:
			err = c.owner.RemoveName(statefs.MarkerName(id, what.from))
		case touchMarker:
			err = c.owner.Touch(id, what.to)
		}
		if err != nil {
			return err
		}
	}
	if what.rec != nil && what.from == what.to {
		c.owner.Journal.Seen(id)
	}
	return nil
}

// commitRecord durably writes a record that changed without a transition; it becomes that of the operation.
func (c *core) commitRecord(op *operation, rec *statefs.Record) error {
	if err := c.commit(rec.ID, change{rec: rec}, writeRecord, syncFiles); err != nil {
		return err
	}
	op.rec = rec
	c.committed(op)
	return nil
}

// transition moves an operation to the state that follows by cause, in the order that the table gives.
func (c *core) transition(op *operation, cause statefs.Cause) error {
	row, err := statefs.TransitionFrom(op.state, cause)
	if err != nil {
		return err
	}
	return c.makeTransition(op, row)
}

// transitionDurably is transition with everything durable when it returns.
func (c *core) transitionDurably(op *operation, cause statefs.Cause) error {
	if err := c.transition(op, cause); err != nil {
		return err
	}
	return c.persist(op)
}

// makeTransition makes a transition. In statefs.MarkerFirst it renames the marker, and the reconcile writes the
// record at its end. In statefs.RecordFirst its reasons must not be lost: the record, which names the next
// state, is durable before the marker is renamed.
func (c *core) makeTransition(op *operation, row statefs.Transition) error {
	move := change{from: row.From, to: row.To}
	if row.Order == statefs.MarkerFirst && !c.owner.Journal.InUse() {
		if err := c.commit(op.id(), move, moveMarker); err != nil {
			return err
		}
		return c.noteTransition(op, row.Cause)
	}
	op.feed.stopUnnumbered = row.To == statefs.FailedManual && op.feed.unpublishedStop == 0
	if err := c.numberStop(op); err != nil {
		return err
	}
	rec := *op.rec // a copy, because this is repeated after a full disk
	if !c.owner.Journal.InUse() {
		rec.Next = row.To
	}
	if row.Cause == statefs.CauseRescued {
		rec.Rescues++
	}
	if err := rec.Apply(row.From, row.Cause, c.owner.Now()); err != nil {
		return err
	}
	if err := c.commit(op.id(), change{rec: &rec, from: row.From, to: row.To}, writeRecord); err != nil {
		return c.publishStop(op, err)
	}
	if err := c.commit(op.id(), move, syncFiles, moveMarker); err != nil {
		return c.takeBack(op.rec, err)
	}
	c.countTransition(op.id(), row)
	if row.Order == statefs.MarkerFirst {
		*op.rec = rec // the caller goes on with the record that it has
	} else {
		op.rec = &rec
	}
	c.enterState(op, row.To)
	op.feed.stopUnnumbered = false // numberStop has numbered it
	return nil
}

// takeBack writes the record of an operation again if a person moved its marker before the daemon could: it is not in
// the state that the journal has.
func (c committer) takeBack(rec *statefs.Record, moved error) error {
	if errors.Is(moved, errMoved) && c.owner.Journal.InUse() {
		return errors.Join(moved, c.commit(rec.ID, change{rec: rec}, writeRecord))
	}
	return moved
}

// noteTransition updates the operation after its marker was renamed.
func (c *core) noteTransition(op *operation, cause statefs.Cause) error {
	from := op.state
	if err := op.rec.Apply(from, cause, c.owner.Now()); err != nil {
		return err
	}
	c.countTransition(op.id(), statefs.Transition{From: from, Cause: cause, To: op.rec.Status})
	c.enterState(op, op.rec.Status)
	return nil
}

func (c *core) countTransition(id statefs.ID, row statefs.Transition, more ...any) {
	c.counters.transitions.Add(1)
	c.logger.Info("transition", append([]any{"id", id, "from", row.From, "to", row.To, "cause", row.Cause}, more...)...)
}

// enterState notes the new state of a marker. Requests that have already taken effect are dropped:
// if one of them were carried out again after a crash, it would undo this move.
func (c *core) enterState(op *operation, state statefs.State) {
	if op.state.NeedsPerson() != state.NeedsPerson() {
		defer c.admission.Changed() // for the operations that depend on it
	}
	c.setState(op, state)
	op.unsaved = true
	op.feed.stopUnnumbered = state == statefs.FailedManual
	if err := c.dropDoneRequests(op); err != nil {
		c.logger.Warn("request that took effect not removed, retrying", "id", op.id(), "error", err)
	}
}

// persist syncs the rename, then writes the record, then drops the requests that led to it.
func (c *core) persist(op *operation) error {
	if err := c.commit(op.id(), change{}, syncFiles); err != nil {
		return err
	}
	op.rec.Next = ""
	op.copyProgress()
	if err := c.numberStop(op); err != nil {
		return err
	}
	if err := c.publishStop(op, c.commit(op.id(), change{rec: op.rec}, writeRecord)); err != nil {
		return err
	}
	op.unsaved, op.unrecordedStart = false, time.Time{}
	c.committed(op)
	return c.dropDoneRequests(op)
}

// dropDoneRequests removes the requests that have taken effect, and answers the clients that wait for them.
func (c *core) dropDoneRequests(op *operation) error {
	for len(op.doneRequests) > 0 {
		done := op.doneRequests[0]
		needed := func(r *request) bool { return r.Action == done.Action } // both share one file in taken/
		if !slices.ContainsFunc(op.unsettled(), needed) {
			if err := c.drop(op, done); err != nil {
				return err
			}
		}
		op.doneRequests = op.doneRequests[1:]
	}
	c.settleRequests(op)
	return nil
}

// drop removes a request for good.
func (c *core) drop(op *operation, r *request) error {
	if err := c.owner.Requests.Drop(r.TakenRequest); err != nil {
		return err
	}
	r.dropped = true
	c.waiters.Note(op.id(), r.Action, r.At.Args, r.carriedOut)
	c.filesChanged(op.id()) // of a refused request nothing else tells
	return nil
}

// isUnusedNumber reports whether a record whose write failed certainly does not contain number.
func (c *core) isUnusedNumber(id statefs.ID, number uint64) bool {
	rec, err := c.owner.ReadRecord(id)
	return err == nil && rec.FinishedSeq != number && rec.NeedsPersonSeq != number
}

// numberStop assigns a number in the feed to the stop of an operation that became failed_manual. It
// is called before the record is written.
func (c *core) numberStop(op *operation) error {
	e := &op.feed
	if !e.stopUnnumbered {
		return nil
	}
	number, err := c.history.Number()
	if err != nil {
		return err
	}
	e.stopUnnumbered, e.unpublishedStop, e.earlierStop = false, number, op.rec.NeedsPersonSeq
	op.rec.NeedsPersonSeq = number
	return nil
}

// publishStop publishes that an operation waits for a person, once its record is durable. written
// is the error of writing the record. If the write or the sync fails and the record certainly does
// not contain the number, the number is marked unused and the stop gets a new one later.
func (c *core) publishStop(op *operation, written error) error {
	e := &op.feed
	if e.unpublishedStop == 0 {
		return written
	}
	if written == nil {
		written = c.commit(op.id(), change{}, syncFiles)
	}
	if written != nil {
		if c.isUnusedNumber(op.id(), e.unpublishedStop) {
			c.history.Unused(e.unpublishedStop)
			op.rec.NeedsPersonSeq = e.earlierStop
			e.stopUnnumbered, e.unpublishedStop = true, 0
		}
		return written
	}
	c.history.Stopped(op.rec, e.earlierStop)
	e.unpublishedStop = 0
	return nil
}

// AwaitRequest registers a client that is about to make a request and waits for its outcome.
func (c *core) AwaitRequest(id statefs.ID, ask statefs.Action) *effect.Waiter {
	return c.waiters.Await(id, ask, c.reconcileQueue.enqueue)
}

// settleRequests answers the clients that wait for a request of a managed operation when nothing of it is pending and
// its effect is durable. A request without a file that was never taken is withdrawn. A cancel is answered by the end.
func (c *core) settleRequests(op *operation) {
	c.waiters.Settle(op.id(), func(r effect.Request) (o effect.Outcome, final bool) {
		if !op.managed {
			return o, false // it has ended; cleanUp answers
		}
		o = effect.Outcome{State: op.state, TookEffect: tookEffect(r, op.state)}
		pending := slices.ContainsFunc(append(op.unsettled(), op.doneRequests...),
			func(other *request) bool { return other.Action == r.Action && !other.dropped })
		final = r.Made && !pending && !(o.TookEffect && op.unsaved) &&
			!(r.Action.Spec().Ends && op.awaiting[decide.EndWork] != nil)
		if final {
			sight, err := c.owner.Observe(op.id(), statefs.MarkerBit(op.state)|statefs.Name{Action: r.Action}.Bit())
			final = err == nil && len(sight.States) == 1 && len(sight.Requests) == 0
		}
		if !final {
			o.TookEffect = op.hasCarriedOut(r.Action)
		}
		return o, final
	})
}

// hasCarriedOut reports whether a request is carried out whose effect may not be durable yet, as on a full disk.
func (op *operation) hasCarriedOut(action statefs.Action) bool {
	if action.Cancels() {
		return op.awaiting[decide.EndWork] != nil && op.workEnded() && (op.run == nil || op.run.EndedByCancel())
	}
	done := slices.ContainsFunc(op.doneRequests, func(r *request) bool { return r.Action == action })
	switch paused := op.state == statefs.Paused; action { //nolint:exhaustive // others are answered when they are durable
	case statefs.Pause:
		return done && paused
	case statefs.Resume:
		return done && !paused && (op.run == nil || !op.run.PauseRequested())
	}
	return false
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
			ended, _ := c.owner.ReadEnded(id) // nil of a foreign operation
			o.State = sight.States[0]
			final = ended == nil && r.Made && !slices.Contains(sight.Requests, r.Action) && !r.Action.AppliesIn(o.State)
			o.TookEffect = final && r.Action.LeadsTo(o.State)
			return o, final
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

// tookEffect reports whether a request was carried out, or had nothing to do, and the operation is in a state that the
// action asks for.
func tookEffect(r effect.Request, state statefs.State) bool {
	switch r.Action { //nolint:exhaustive // the record keeps the effect of the others
	case statefs.Pause:
		return r.CarriedOut && state == statefs.Paused
	case statefs.Resume:
		return r.CarriedOut && state != statefs.Paused && state != statefs.Cancelled
	}
	return r.CarriedOut
}

// indexEnded indexes a finished operation that is not in the index yet.
func (c *core) indexEnded(id statefs.ID) error {
	if _, has, err := c.history.Find(id); err != nil || has {
		return nil //nolint:nilerr // the index is being built and will find it
	}
	rec, err := c.owner.ReadEnded(id)
	if err != nil || rec == nil {
		return nil //nolint:nilerr // readers of the record report it
	}
	if rec.FinishedSeq == 0 {
		if err := c.history.NumberOld(rec); err != nil {
			return err
		}
	}
	c.history.Ended(rec)
	return nil
}
