package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/stream"
)

// requests carries out the requests of people and programs.
type requests struct {
	*core
	ends   *ends
	starts *starts
}

// lineNoEffect is the line for a request that changes nothing.
func lineNoEffect(ask statefs.Action, state statefs.State) string {
	return fmt.Sprintf("  %s requested while %s: nothing to do.", ask.Title(), state)
}

// takeRequests adds requests to op.pendingRequests, in the order in which they are to be carried
// out. It returns only errors that go away by themselves (resource exhausted).
func (q *requests) takeRequests(op *operation, asks []statefs.Action) error {
	for _, ask := range asks {
		if len(op.rec.Steps) > 0 && ask.Spec().OnStep {
			if wait := q.owner.RequestSettleDelay(op.id(), ask, statefs.QuietPeriod); wait > 0 {
				q.reconcileQueue.enqueueAfter(op.id(), wait)
				continue
			}
		}
		t, ok, err := q.owner.Requests.Take(op.id(), ask)
		if machine.OutOfFiles(err) || files.DiskFull(err) {
			return err
		}
		if err != nil {
			q.logger.Warn("request ignored", "id", op.id(), "request", ask, "error", err)
			continue
		}
		if ok {
			q.counters.requests.Add(1)
			op.pendingRequests = append(op.pendingRequests, &request{TakenRequest: t})
		}
	}
	slices.SortStableFunc(op.pendingRequests, func(a, b *request) int {
		if a.Action.Cancels() != b.Action.Cancels() {
			if a.Action.Cancels() {
				return -1
			}
			return 1
		}
		return a.At.Compare(b.At)
	})
	return nil
}

// ignoreRequest drops a request that has no effect in the present state, and writes so into the log
// of the operation.
func (q *requests) ignoreRequest(op *operation, r *request, _ decide.Answer) error {
	r.carriedOut = r.Action == statefs.Pause || r.Action == statefs.Resume // tookEffect compares the state
	q.logLine(op, lineNoEffect(r.Action, op.state))
	q.logger.Info("request has no effect in this state", "id", op.id(), "request", r.Action, "state", op.state)
	return nil
}

// takePauseBack lets work go on that a pause has not stopped yet.
func (q *requests) takePauseBack(op *operation, r *request, answer decide.Answer) error {
	q.logLine(op, answer.Line)
	op.run.Resume()
	op.doneRequests = append(op.doneRequests, op.awaiting[decide.StopWork])
	delete(op.awaiting, decide.StopWork)
	r.carriedOut = true
	return nil
}

// transitionFor makes the transition of a request.
func (q *requests) transitionFor(op *operation, r *request, answer decide.Answer) error {
	if !r.logged {
		q.logLine(op, answer.Line)
		r.logged = true
	}
	err := q.transition(op, answer.Cause)
	r.carriedOut = err == nil
	return err
}

// commitReconcile continues work whose marker a resume has moved, makes the changes of this reconcile (or of
// an earlier failed one) durable, and then drops the requests that led to them.
func (q *requests) commitReconcile(op *operation) error {
	if op.state == statefs.Running && op.run != nil && op.awaiting[decide.StopWork] == nil && op.run.PauseRequested() {
		// The rename is durable before the work continues.
		if err := q.commit(op.id(), change{}, syncFiles); err != nil {
			return err
		}
		op.run.Resume()
	}
	switch {
	case op.finishedRun != nil:
		return q.starts.finishRun(op)
	case op.unsaved:
		return q.persist(op)
	}
	return q.dropDoneRequests(op)
}

// returnToWaiting moves a marker that a person renamed from paused to running to the state in which
// the operation waits for its time.
func (q *requests) returnToWaiting(op *operation, move decide.Answer) error {
	op.state = statefs.Paused // a start took it over as running
	to, err := statefs.Next(statefs.Paused, move.Cause)
	if err != nil {
		return err
	}
	if err := q.commit(op.id(), change{from: statefs.Running, to: to}, moveMarker); err != nil {
		return err
	}
	q.logLine(op, move.Line)
	return q.noteTransition(op, move.Cause)
}

// fileTimeSlack is how far the time of a file may be behind the clock: the kernel stamps files with
// the time of its last tick, at most a hundredth of a second ago.
const fileTimeSlack = 10 * time.Millisecond

// olderThanState reports whether a request was made before the present state was entered. It is
// false if that state was entered in the future: then the clock was set back, and the times cannot
// be compared.
func (q *requests) olderThanState(op *operation, r *request) bool {
	since := op.rec.Since()
	return r.At.At.Add(fileTimeSlack).Before(since) && !since.After(q.owner.Now())
}

// retry restarts an operation that waits for a person or for its next attempt, unless that is refused.
func (q *requests) retry(op *operation, r *request, answer decide.Answer) error {
	if _, err := acts.Check(nil, op.rec, op.state, statefs.Retry, statefs.Args{}); err != nil {
		q.refuse(op, r.Action, err)
		return nil
	}
	return q.restart(op, r, func() error {
		if err := q.transitionFor(op, r, answer); err != nil {
			return err
		}
		q.clearFailure(op.rec)
		return nil
	})
}

// restart is retryUnlessEqual for a request, which is dropped if an equal operation is live.
func (q *requests) restart(op *operation, r *request, begin func() error) error {
	other, err := q.retryUnlessEqual(op, begin)
	if other != nil {
		q.logLine(op, lineEqual(other.ID))
		q.logger.Info("request has no effect: an equal operation is live", "id", op.id(), "request",
			r.Action, "equal", other.ID)
	}
	return err
}

func lineEqual(other statefs.ID) string {
	return fmt.Sprintf("  Retry requested while operation %s does the same: nothing to do before that has ended.", other)
}

// retryUnlessEqual calls begin to restart an operation. If the operation waits for a person while
// an equal one is live, it returns that one instead, as a submit would.
func (q *requests) retryUnlessEqual(op *operation, begin func() error) (other *statefs.Record, err error) {
	def, err := q.storedDefinition(op.rec)
	if op.state != statefs.FailedManual || err != nil {
		return nil, begin() // without a definition the start fails and reports it
	}
	found, err := q.config.Intake.RestartUnlessDuplicate(op.rec, def.Unique.OnHit, begin)
	return found.Record, err
}

// clearFailure forgets why the last attempt failed and when attempts began to fail: a person wants
// another try.
func (q *requests) clearFailure(rec *statefs.Record) {
	if rec.Reason == reasonDependency {
		rec.After, rec.Require = nil, "" // they have ended, and the person wants it to run anyway
	}
	rec.DiedAt, rec.Reason, rec.Error, rec.RetryUntil = nil, "", nil, nil
	if len(rec.Steps) > 0 {
		rec.Attempts, rec.Warnings, rec.Backoff = 0, 0, 0 // in a job with steps they count for the step
	}
}

// prioritize changes the priority of an operation. The record with the new priority is written
// before the request is dropped, so the priority survives a crash. An operation that is not waiting
// uses it the next time it waits.
func (q *requests) prioritize(op *operation, r *request, _ decide.Answer) error {
	priority, err := q.requestedPriority(op, r)
	if err != nil {
		q.logLine(op, "  Prioritize requested: "+err.Error()+"; nothing is changed.")
		q.logger.Warn("request ignored", "id", op.id(), "request", r.Action, "error", err)
		return nil
	}
	if priority != op.rec.Priority {
		q.logLine(op, fmt.Sprintf("  Prioritize requested: its priority is now %d.", priority))
		q.logger.Info("priority changed", "id", op.id(), "from", op.rec.Priority, "to", priority)
		op.rec.Priority, op.unsaved = priority, true
		if op.shown.Place.Standing == decide.Waiting && op.state == statefs.Queued {
			q.admission.tryAdmit(&q.operations, op) // move it in the queue before the requester gets an answer
		}
	}
	r.carriedOut = true
	return nil
}

// requestedPriority returns the priority given in the request. A request without arguments gets the
// priority that puts the operation first in its lane.
func (q *requests) requestedPriority(op *operation, r *request) (int, error) {
	if len(r.At.Args) == 0 {
		return min(q.admission.frontPriority(op), statefs.MaxPriority), nil
	}
	var args struct {
		Priority *int `json:"priority"`
	}
	if err := json.Unmarshal(r.At.Args, &args); err != nil || args.Priority == nil {
		return 0, fmt.Errorf(`want {"priority": 5}, or nothing for the first place, and not %q`, stream.Printable(string(r.At.Args)))
	}
	if p := *args.Priority; p < -statefs.MaxPriority || p > statefs.MaxPriority {
		return 0, fmt.Errorf("priority %d is not from %d to %d", p, -statefs.MaxPriority, statefs.MaxPriority)
	}
	return *args.Priority, nil
}

// requestCancel makes the cancel request that the removal of a marker means, and takes it. The
// marker exists again until the work has ended, so without the request the next daemon would not
// know of the cancel. If the request cannot be made, the cancel is carried out all the same.
func (q *requests) requestCancel(op *operation) statefs.TakenRequest {
	taken := statefs.TakenRequest{ID: op.id(), Action: statefs.Cancel}
	err := q.owner.Request(context.Background(), op.id(), statefs.Cancel, nil)
	if err == nil {
		var t statefs.TakenRequest
		var ok bool
		if t, ok, err = q.owner.Requests.Take(op.id(), statefs.Cancel); ok {
			return t
		}
	}
	if err != nil {
		q.logger.Warn("cancel not recorded; it is lost if the daemon ends before the work", "id",
			op.id(), "error", err)
	}
	return taken
}
