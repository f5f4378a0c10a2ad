package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/trigger"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// ends makes operations end: it seals the log, records the end, and starts what follows from it.
type ends struct {
	*core

	// Deliveries brings results to targets.
	Deliveries *delivery.Deliveries
	// Trigger submits by schedule, from new/, and what follows.
	Trigger *trigger.Trigger
	// detachedCount is how many operations continue without the daemon.
	detachedCount atomic.Int64
}

// finishAs ends an operation by cause. It syncs the log, writes and syncs the terminal record, and
// then removes the marker.
func (e *ends) finishAs(op *operation, cause statefs.Cause) error {
	if cause != statefs.CauseMainDone && e.endOptionalSteps(op, func(r *work.Run) { r.End(work.ErrCancelled) }) {
		return nil // called again when the optional steps have ended
	}
	if op.state == statefs.Trailing {
		return e.endTrailing(op, cause)
	}
	now := e.owner.Now()
	op.copyProgress()
	if len(op.rec.Steps) > 0 && op.rec.Progress != nil {
		op.rec.Progress = progressNow(op.rec, *op.rec.Progress)
	}
	var rep *work.Report
	if op.run != nil && op.run.Step() == nil {
		rep = op.run.Report()
	} else {
		rep = e.earlierReport(op)
	}
	rec := *op.rec // a copy, because this is repeated after a full disk
	rec.FinishedAt = &now
	if op.run != nil {
		rec.FinishedAt = new(op.run.Outcome().EndedAt(rec.StartedAt, now))
	}
	rec.Processed, rec.FailedN = rep.Counts()
	if err := decide.End(&rec, op.state, cause, now); err != nil {
		return err
	}
	if err := e.recordFollowUp(op, &rec, rep); err != nil {
		return err
	}
	if err := e.addDeliveries(op, &rec, rep); err != nil {
		return err
	}
	length, err := e.seal(op)
	if err != nil {
		return err
	}
	rec.LogBytes, rec.StalledAt = &length, nil
	if rec.Resources != nil {
		rec.Resources.OutputBytes = length
	}
	rec.Footer = rep.Footer(&rec, filepath.Base(e.owner.ItemsPath(op.id())))
	if rec.Trailing {
		return e.beginTrailing(op, &rec)
	}
	moved := e.recordEnd(op, &rec)
	if moved != nil && !errors.Is(moved, errMoved) {
		return moved
	}
	if op.run != nil {
		op.run.Acknowledge()
	}
	e.counters.finished.Add(1)
	e.logger.Info("finished", "id", rec.ID, "status", rec.Status, "result", rec.Result, "cause", cause)
	return e.cleanUp(op, &rec, moved)
}

// recordEnd makes an end durable and enters it into the history, and then removes the marker, or moves it
// to trailing: at any time an operation is found in the history or by its marker. Before all that it
// writes the outbox entries of its deliveries. It returns errMoved if all is done and the marker was not there.
func (e *ends) recordEnd(op *operation, rec *statefs.Record) error {
	if err := e.Deliveries.Write(rec); err != nil {
		return err
	}
	if op.feed.end == 0 {
		number, err := e.history.Number()
		if err != nil {
			return err
		}
		op.feed.end = number
	}
	rec.FinishedSeq = op.feed.end
	if err := e.commit(rec.ID, change{rec: rec, from: op.state}, writeEnd); err != nil {
		if e.isUnusedNumber(rec.ID, op.feed.end) {
			e.history.Unused(op.feed.end)
			op.feed.end = 0
		}
		return err
	}
	e.live.End(op.id())
	e.history.Ended(rec)
	e.Deliveries.Enqueue(rec)
	if rec.Trailing {
		return e.commit(rec.ID, change{from: op.state, to: statefs.Trailing}, moveMarker, syncFiles)
	}
	return e.commit(rec.ID, change{from: op.state}, removeMarker)
}

// seal syncs the log and returns its final length. Bytes that a process writes later, because it
// could not be found and ended, do not count.
func (e *ends) seal(op *operation) (int64, error) {
	if op.hasNoLog() {
		return 0, nil
	}
	info, err := os.Stat(e.owner.LogPath(op.id()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the work never started
	}
	if err != nil {
		return 0, fmt.Errorf("seal the log of %s: %w", op.id(), err)
	}
	if op.log != nil && e.owner.Durability() == statefs.Power && info.Size() > 0 {
		if err := op.log.Open(); err != nil {
			return 0, err // no SyncError: the disk did not fail
		}
		if err := op.log.Sync(); err != nil {
			return 0, &files.SyncError{Path: e.owner.LogPath(op.id()), Err: err}
		}
	}
	return info.Size(), nil
}

// cleanUp untracks an operation that has ended with rec, lets another start in its place, removes what it no
// longer needs, and answers the clients that wait for its requests. If its marker was moved, readers still see the
// state of the marker: another reconcile removes it, and answers then.
func (e *ends) cleanUp(op *operation, rec *statefs.Record, moved error) error {
	op.rec, op.state = rec, rec.Status
	e.untrack(op)
	e.admission.admit() // the next one starts while the files of this one are removed
	e.closeLog(op)
	var errs []error
	for _, r := range op.unsettled() {
		errs = append(errs, e.drop(op, r))
	}
	op.pendingRequests, op.awaiting = nil, nil
	errs = append(errs, e.dropDoneRequests(op))
	if !op.hasNoLog() {
		errs = append(errs, e.owner.Output.RemoveEmptyLog(op.id(), ""))
	}
	if moved != nil {
		e.reconcileQueue.enqueue(op.id())
	} else {
		e.waiters.Settle(op.id(), func(r effect.Request) (effect.Outcome, bool) { return outcomeOfEnd(r, op.rec), true })
	}
	if op.run == nil || op.run.Def().Work() != catalog.WorkHandler { // a handler has no scratch folder
		errs = append(errs, work.RemoveScratch(e.owner.LogPath(op.id())))
	}
	if op.run == nil { // otherwise the end of the run has done this
		_ = os.Remove(e.owner.ArtifactsPath(op.id())) // fails unless the folder is empty
	}
	return errors.Join(errs...)
}

// releaseWaiters lets equal submits start a new operation, and enqueues the operations that wait
// for this one.
func (e *ends) releaseWaiters(op *operation) {
	e.config.Intake.Forget(op.rec)
	e.enqueueChildren(op.id())
}

// earlierReport returns the report of an operation that ends without a run: the results of its
// earlier runs. For an operation with steps it is that of all steps, with their outputs as the result.
func (e *ends) earlierReport(op *operation) *work.Report {
	rep, began := new(work.Report), op.rec.Starts > 0 || op.rec.RetryOf != nil
	if len(op.rec.Steps) > 0 {
		if began {
			if err := rep.AddItems(e.owner, op.rec); err != nil {
				e.logger.Error("item results are not in the footer", "id", op.id(), "error", err)
			}
		}
		rep.AddOutputs(op.rec.Steps)
		return rep
	}
	if !began {
		return rep
	}
	def, params, err := e.definition(op.rec)
	if err != nil || def.Work() != catalog.WorkItems {
		return rep // a handler may have repeated its items in each run
	}
	rep.SetTotal(def.Total(params))
	if err := rep.AddItems(e.owner, op.rec); err != nil {
		e.logger.Error("item results of earlier runs are not in the footer", "id", op.id(), "error", err)
	}
	return rep
}

// beginTrailing makes an end durable while optional steps continue.
func (e *ends) beginTrailing(op *operation, rec *statefs.Record) error {
	from := op.state
	if err := e.recordEnd(op, rec); err != nil {
		return err
	}
	ended := op.run
	op.rec, op.run, op.endCause, op.unsaved = rec, nil, "", false
	e.counters.finished.Add(1)
	e.logger.Info("finished; optional steps continue", "id", rec.ID, "result", rec.Result, "from", from)
	e.setState(op, statefs.Trailing)
	e.releaseWaiters(op)
	e.closeLog(op)
	e.committed(op)
	e.reconcileQueue.enqueue(op.id())
	if ended != nil {
		return errors.Join(e.dropDoneRequests(op), ended.Forget())
	}
	return e.dropDoneRequests(op)
}

// endTrailing ends a trailing operation.
func (e *ends) endTrailing(op *operation, cause statefs.Cause) error {
	rec := *op.rec
	if err := decide.EndTrailing(&rec, cause, e.owner.Now()); err != nil {
		return err
	}
	if len(rec.Artifacts) == 0 {
		rec.Artifacts = work.ListArtifacts(e.owner.ArtifactsPath(op.id()))
	}
	moved := e.commit(op.id(), change{rec: &rec, from: op.state}, writeEnd, removeMarker)
	if moved != nil && !errors.Is(moved, errMoved) {
		return moved
	}
	e.logger.Info("optional steps ended", "id", rec.ID, "cause", cause)
	return e.cleanUp(op, &rec, moved)
}

// endOptionalSteps ends the running optional steps with end, and reports whether there are any.
func (e *ends) endOptionalSteps(op *operation, end func(*work.Run)) bool {
	for _, s := range op.optionalSteps {
		end(s.run)
	}
	return len(op.optionalSteps) > 0
}

// endWork ends the work of an operation for a request, without a grace period if the effect is decide.KillWork. The
// request takes effect when the work has ended. The code of a handler cannot be killed: its context ends.
func (e *ends) endWork(op *operation, r *request, answer decide.Answer) error {
	if answer.Line != "" {
		e.logLine(op, answer.Line)
	}
	op.await(decide.EndWork, r, answer.Cause)
	end, why := (*work.Run).End, work.ErrorOf(answer.Cause)
	if answer.Effect == decide.KillWork {
		end = (*work.Run).Kill
	}
	e.endOptionalSteps(op, func(r *work.Run) { end(r, why) })
	if op.run != nil {
		end(op.run, why)
	}
	return nil
}

// complete makes the transition of an awaited request; without a cause there is nothing more to do.
func (e *ends) complete(op *operation, answer decide.Answer) error {
	r := op.awaiting[answer.Awaited]
	if answer.Cause != "" {
		if err := e.transition(op, answer.Cause); err != nil {
			return err
		}
		r.carriedOut = true
	}
	op.doneRequests = append(op.doneRequests, r)
	delete(op.awaiting, answer.Awaited)
	e.reconcileQueue.enqueue(op.id())
	return nil
}

// detachOperation untracks an operation whose command continues under its keeper. The next daemon
// finds it in its current state.
func (e *ends) detachOperation(op *operation) error {
	if op.copyProgress(); op.unsaved {
		if err := e.persist(op); err != nil {
			return err
		}
	} else if err := e.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	e.closeLog(op)
	e.untrack(op)
	e.detachedCount.Add(1)
	return nil
}

// expiredLimit returns the error for a limit of an operation that has expired, nil for none.
func (e *ends) expiredLimit(op *operation) *statefs.Fault {
	t, ran := e.deadlinesOf(op), e.uptime()
	over := func(limit time.Duration) bool { return limit > 0 && limit <= ran }
	if !over(t.expiry) && !over(t.queue) {
		return nil
	}
	def, err := e.storedDefinition(op.rec)
	switch {
	case err != nil:
		return nil
	case over(t.expiry):
		return &statefs.Fault{Code: "deadline_exceeded", Message: "it has not ended within its deadline of " +
			param.FormatDuration(def.Deadline)}
	}
	return &statefs.Fault{
		Code:    "queue_timeout",
		Message: "it waited in the queue for longer than its queue_timeout of " + param.FormatDuration(def.QueueTimeout),
	}
}

// endExpired ends the work of an operation, one of whose limits has expired.
func (e *ends) endExpired(op *operation, x seen, _ decide.Answer) error {
	op.run.End(&work.Error{Code: x.fault.Code, Err: errors.New(x.fault.Message)})
	return nil
}

// expire ends an operation without work, one of whose limits has expired.
func (e *ends) expire(op *operation, x seen, answer decide.Answer) error {
	if op.rec.Error == nil || op.rec.Error.Code != x.fault.Code { // on a full disk this code runs again
		e.logLine(op, "  ERROR: "+x.fault.Message)
	}
	op.rec.Error, op.rec.Reason = x.fault, ""
	return e.finishAs(op, answer.Cause)
}

// jobOfEnded returns the definition of an ended operation and the values for the names of its deliveries.
func (e *ends) jobOfEnded(rec *statefs.Record) (def *catalog.Definition, values catalog.Values, err error) {
	def, params, err := e.definition(rec)
	switch {
	case isTransient(err):
		return nil, values, err
	case err != nil:
		return nil, values, nil //nolint:nilerr // it is lost for good
	}
	return def, catalog.Values{
		Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, work.MemberOf(rec.Footer)),
	}, nil
}

// withEndedRecord runs do with the terminal record of an operation while no reconcile of it runs.
func (e *ends) withEndedRecord(ctx context.Context, id statefs.ID, do func(*statefs.Record, error) error) error {
	return e.withOperation(ctx, id, func(op *operation) error {
		switch {
		case op == nil:
			return do(e.owner.ReadRecord(id))
		case op.state == statefs.Trailing && op.rec.Status.Terminal():
			return do(op.rec, nil)
		}
		return do(nil, delivery.ErrNotEnded)
	})
}

// addDeliveries lists the deliveries of an operation in a record that is about to become terminal.
// An error is transient.
func (e *ends) addDeliveries(op *operation, rec *statefs.Record, rep *work.Report) error {
	rec.Deliveries = nil // drops those of an earlier attempt to write an end, which may differ
	if def, err := e.storedDefinition(op.rec); err == nil && len(def.Deliver) == 0 {
		return nil
	}
	def, params, err := e.definition(op.rec)
	if isTransient(err) {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // no target is known; the lost definition was reported when the operation was to start
	}
	rec.Deliveries = e.Deliveries.Plan(def, rec,
		catalog.Values{Params: params, ID: rec.ID.String(), Result: work.ReturnedOnly(rec, rep.Member)})
	for _, it := range rec.Deliveries {
		if it.State == statefs.DeliveryManual && op.rec.Delivery(it.Place) == nil { // logged once, also when a full disk repeats this
			e.logLine(op, fmt.Sprintf("  ERROR: it is not delivered to target %d (%s): %s", it.Place, it.Kind, it.Error))
		}
	}
	op.rec.Deliveries = rec.Deliveries
	return nil
}

// errNotReady delays the end of an operation until the daemon accepts submits, which it does once
// it knows every live operation.
var errNotReady = errors.New("submits are not taken yet")

// recordFollowUp submits the job that follows a completed operation, and notes the outcome in the
// record. It runs before the end is committed. If the daemon dies in between, the next one submits
// again under the same idempotency key and gets the same operation. The returned error is
// transient.
func (e *ends) recordFollowUp(op *operation, rec *statefs.Record, rep *work.Report) error {
	if rec.Status != statefs.Completed || rec.Then != nil {
		return nil
	}
	def, params, err := e.definition(op.rec)
	if err != nil || def.Then == nil {
		return nil //nolint:nilerr // a definition lost since the run promises no follow-up
	}
	if !e.isReady() {
		return errNotReady
	}
	follower, refusal, err := e.Trigger.FollowUp(def.Then,
		catalog.Values{Params: params, ID: rec.ID.String()}, rec.CreatedAt, rep.Member)
	if err != nil {
		return fmt.Errorf("submit what follows %s: %w", rec.ID, err)
	}
	if refusal != nil {
		rec.Then = &statefs.Follower{Error: refusal.Error()}
		e.logLine(op, fmt.Sprintf("  ERROR: %s, which follows, was not submitted: %s", def.Then.Address(), refusal))
		e.logger.Error("the job that follows was not submitted", "id", rec.ID, "job", def.Then.Address(), "error", refusal)
	} else {
		rec.Then = &statefs.Follower{ID: follower}
		e.logLine(op, fmt.Sprintf("  Then %s: %s.", def.Then.Address(), rec.Then.ID))
	}
	op.rec.Then = rec.Then // after a full disk this is repeated
	return nil
}

// withOperation runs fn while no other reconcile of the operation runs, and returns its error. op
// is nil if the daemon does not manage the operation.
func (e *ends) withOperation(ctx context.Context, id statefs.ID, fn func(op *operation) error) error {
	done := make(chan error, 1)
	e.atReconcile(id, func(op *operation) { done <- e.failOnSyncError(fn(op)) })
	select {
	case err := <-done:
		return err
	case <-e.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
