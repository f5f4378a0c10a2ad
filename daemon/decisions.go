package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// decisions observes an operation, asks package decide what that means, and carries the answer out.
type decisions struct {
	*core
	markers  *markers
	ends     *ends
	starts   *starts
	optional *optional
	finisher *finisher
	requests *requests
	effects  map[decide.Effect]carrier
}

// view is what a reconcile observes of one part of an operation, and has judged. It returns true if nothing more can
// be done in this reconcile.
type view func(dc *decisions, op *operation, sight statefs.Observation) (last bool, err error)

// views are the views of a reconcile in their order. An end is recorded before anything else counts, and a start
// before anything else happens to the operation. A daemon that stops changes nothing more. An operation whose end is
// requested has only its end ahead. The marker comes before the requests, because it has the state that a request
// meets. Time counts after what people want, and only what nothing of this has moved goes on by itself.
var views = []view{
	(*decisions).viewEnd, (*decisions).viewUnrecordedStart, (*decisions).viewStop, (*decisions).viewEnding,
	(*decisions).viewMarkers, (*decisions).viewRequests, (*decisions).viewLimits, (*decisions).viewDue,
	(*decisions).viewUndisturbed,
}

// reconcile reconciles an operation that the daemon manages.
func (dc *decisions) reconcile(op *operation, sight statefs.Observation) error {
	if err := dc.markers.checkMarkerIdentity(op, sight); err != nil {
		return err
	}
	if err := dc.optional.finishOptionalSteps(op); err != nil {
		return err
	}
	op.syncOptionalPause()
	for _, view := range views {
		if last, err := view(dc, op, sight); last || err != nil {
			return err
		}
	}
	return nil
}

// judge carries out what an observation means for an operation. It returns true if nothing more can be done in this
// reconcile.
func (dc *decisions) judge(op *operation, x seen) (last bool, err error) {
	answer, err := dc.ask(op, x)
	return answer.Last() || !op.managed, err
}

func (dc *decisions) ask(op *operation, x seen) (decide.Answer, error) {
	answer := decide.Decide(dc.snapshot(op), x.Observation, dc.env(op))
	return answer, dc.carryOut(op, x, answer)
}

// carryOut carries out an answer.
func (dc *decisions) carryOut(op *operation, x seen, answer decide.Answer) error {
	if carry := dc.effects[answer.Effect]; carry != nil {
		return carry(op, x, answer)
	}
	return nil
}

func (dc *decisions) viewEnd(op *operation, sight statefs.Observation) (last bool, err error) {
	if op.run == nil || !op.run.Ended() {
		return false, nil
	}
	return true, dc.recordWorkEnd(op, sight)
}

// endOf returns how a run ended.
func endOf(r *work.Run) decide.WorkEnded {
	cause := r.EndCause()
	_, err := failureOf(r)
	o := decide.WorkEnded{
		Detached:    r.Detached(),
		Interrupted: errors.Is(cause, work.ErrInterrupted) || errors.Is(cause, work.ErrDetached),
		ByCancel:    r.EndedByCancel(),
		Failed:      err != nil, StallCancels: errors.Is(err, work.ErrStalled) && r.Def().OnStall == catalog.StallCancel,
	}
	if !r.Outcome().EndedByItself() {
		o.EndedBy = work.CauseOf(cause)
	}
	return o
}

// recordWorkEnd records the end of work. If a person moved or removed the marker just before, it handles that first,
// and the next reconcile records the end.
func (dc *decisions) recordWorkEnd(op *operation, sight statefs.Observation) error {
	err := dc.finish(op)
	if err == nil && op.managed {
		err = dc.optional.beginOptionalSteps(op)
		if len(sight.Requests)+len(op.pendingRequests) > 0 || op.run == nil && len(op.awaiting) > 0 {
			dc.reconcileQueue.enqueue(op.id()) // nothing later in this call handles them
		}
	}
	if !errors.Is(err, errMoved) || dc.stopping.Load() {
		return err
	}
	if _, err := dc.viewMarkers(op, sight); err != nil {
		return err
	}
	return errMoved
}

// finish records how a run ended. It is called again after a full disk.
func (dc *decisions) finish(op *operation) error {
	if err := op.run.DiskError(); err != nil {
		return err // this ends the daemon: the disk failed, not the work
	}
	if op.endCause == "" {
		if last, err := dc.judge(op, seen{Observation: endOf(op.run)}); last || err != nil {
			return err
		}
	}
	_, err := dc.judge(op, seen{Observation: decide.EndNoted{Cause: op.endCause, Step: op.run.Step() != nil}})
	return err
}

func (dc *decisions) viewUnrecordedStart(op *operation, sight statefs.Observation) (last bool, err error) {
	if !op.unrecordedStart.IsZero() {
		err = dc.starts.recordStartIfDue(op, sight)
	}
	return false, err
}

func (dc *decisions) viewStop(op *operation, _ statefs.Observation) (last bool, err error) {
	if !dc.stopping.Load() {
		return false, nil
	}
	return dc.judge(op, seen{Observation: decide.DaemonStops{}})
}

func (dc *decisions) viewEnding(op *operation, sight statefs.Observation) (last bool, err error) {
	if op.awaiting[decide.EndWork] == nil {
		return false, nil
	}
	_, err = dc.judge(op, seen{Observation: op.workSeen(false), requests: sight.Requests})
	return true, err
}

func (dc *decisions) viewMarkers(op *operation, sight statefs.Observation) (last bool, err error) {
	dc.markers.setAside(op, sight.Irregular)
	if len(sight.States) > 0 {
		op.missing = missingMarker{}
		op.misplaced.Store(false)
	}
	return dc.judge(op, seen{Observation: decide.MarkersSeen{States: sight.States}})
}

// viewRequests sees the requests, then whether a pause has stopped the work, and makes durable what this reconcile has
// changed so far.
func (dc *decisions) viewRequests(op *operation, sight statefs.Observation) (last bool, err error) {
	if err := dc.takeRequests(op, sight.Requests); err != nil {
		return true, err
	}
	op.syncOptionalPause()
	if err := dc.checkStopped(op); err != nil || !op.managed {
		return true, err
	}
	return false, dc.requests.commitReconcile(op)
}

// takeRequests takes the request files and judges each request: cancels first, the others in the order in which they
// were made, so that the last one wins. A request that could not be carried out stays pending for the next reconcile.
func (dc *decisions) takeRequests(op *operation, asks []statefs.Action) error {
	if r := op.awaiting[decide.StopWork]; r != nil && op.run == nil { // the work ended before it stopped
		delete(op.awaiting, decide.StopWork)
		op.pendingRequests = append(op.pendingRequests, r)
	}
	if err := dc.requests.takeRequests(op, asks); err != nil {
		return err
	}
	for len(op.pendingRequests) > 0 {
		r := op.pendingRequests[0]
		stale := dc.requests.olderThanState(op, r) || alreadyApplied(op.rec, r)
		_, err := dc.judge(op, seen{Observation: decide.Requested{Action: r.Action, Stale: stale}, request: r})
		if err == nil {
			err = dc.checkEnded(op)
		}
		if err != nil {
			return err
		}
		op.pendingRequests = slices.DeleteFunc(op.pendingRequests, func(p *request) bool { return p == r })
		if !slices.Contains(op.unsettled(), r) {
			op.doneRequests = append(op.doneRequests, r)
		}
	}
	return nil
}

// checkStopped completes an awaited pause if all work has stopped.
func (dc *decisions) checkStopped(op *operation) (err error) {
	if op.awaiting[decide.StopWork] != nil && op.isStopped() {
		_, err = dc.judge(op, seen{Observation: op.workSeen(true)})
	}
	return err
}

// checkEnded completes an awaited end if no work is left.
func (dc *decisions) checkEnded(op *operation) (err error) {
	if op.awaiting[decide.EndWork] != nil && !op.working() {
		_, err = dc.judge(op, seen{Observation: op.workSeen(false)})
	}
	return err
}

func (dc *decisions) viewLimits(op *operation, _ statefs.Observation) (last bool, err error) {
	fault := dc.ends.expiredLimit(op)
	if fault == nil {
		return false, nil
	}
	return dc.judge(op, seen{Observation: decide.LimitExpired{}, fault: fault})
}

func (dc *decisions) viewDue(op *operation, _ statefs.Observation) (last bool, err error) {
	if !dc.starts.isDue(op) {
		return false, nil
	}
	return dc.judge(op, seen{Observation: decide.TimeCame{}})
}

// viewParents sees how the parents of a queued operation have ended. It returns true if the operation waits for one, or
// is left to a person because one has not succeeded.
func (dc *decisions) viewParents(op *operation) (last bool, err error) {
	if len(op.rec.After) == 0 || op.rec.Starts > 0 {
		return false, nil
	}
	var met time.Time
	for i, parent := range op.rec.After {
		ended, err := dc.starts.readEnd(parent) // the table has the child already, so the end is not missed
		if err != nil {
			return true, err
		}
		x := seen{Observation: decide.ParentSeen{Live: true}, parent: ended}
		if ended == nil {
			dc.setAwaited(op, &op.rec.After[i])
		} else {
			x.Observation = decide.ParentSeen{Status: ended.Status, AnyEnd: op.rec.Require == statefs.RequireEnd}
			if ended.FinishedAt != nil && ended.FinishedAt.After(met) {
				met = *ended.FinishedAt
			}
		}
		if last, err := dc.judge(op, x); last || err != nil {
			return true, err
		}
	}
	dc.setAwaited(op, nil)
	op.eligibleAt = met
	return false, nil
}

func (dc *decisions) viewUndisturbed(op *operation, _ statefs.Observation) (last bool, err error) {
	return dc.judge(op, seen{Observation: decide.Undisturbed{}})
}

// tryStart starts a queued operation, unless it waits for its parents, a gate, or the queue.
func (dc *decisions) tryStart(op *operation) error {
	if last, err := dc.viewParents(op); last || err != nil {
		return err
	}
	elsewhere, err := dc.advanceQueued(op)
	if err != nil {
		return err
	}
	if !elsewhere && dc.admission.tryAdmit(&dc.operations, op) {
		if _, err := dc.judge(op, seen{Observation: decide.Admitted{}}); err != nil {
			return err
		}
	}
	if !op.managed {
		return nil
	}
	return dc.optional.beginOptionalSteps(op)
}

// followWork starts the optional steps that are ready, and records what the work reports.
func (dc *decisions) followWork(op *operation) error {
	if err := dc.optional.beginOptionalSteps(op); err != nil {
		return err
	}
	if op.run == nil {
		return nil
	}
	if stalled := op.run.Stalled(); stalled != (op.rec.StalledAt != nil) {
		ends := op.run.Def().OnStall != ""
		if _, err := dc.judge(op, seen{Observation: decide.StallChanged{Stalled: stalled, Ends: ends}}); err != nil {
			return err
		}
	}
	return dc.finisher.recordPhase(op)
}
