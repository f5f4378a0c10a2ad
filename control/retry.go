package control

import (
	"errors"
	"io/fs"
	"net/http"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// retries start operations again.
type retries struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	intake  *submit.Intake
	view    *viewer
	start   *starter
	act     *actions
}

// retry is POST /api/v1/operations/{id}/retry. A live operation that waits for a person or for its next attempt starts
// again. For an ended operation a new one is made, which inherits the successful items; it is durable when the answer
// is sent, so there is nothing to wait for.
func (s *retries) retry(w *front.Response, r *front.Request) error {
	id, err := statefs.ParseID(r.Param("id"))
	if err != nil {
		return err
	}
	if state, err := s.tree.State(id); err == nil {
		if other, err := s.liveDuplicate(id, state); err != nil || other.Record != nil {
			return s.sendDuplicate(w, r, other, err)
		}
		return s.retryLive(w, r, id)
	} else if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := front.AllowParameters(values, "failed_items", "wait", "step", "strict"); err != nil {
		return err
	}
	if _, err := front.WaitTime(values.Get("wait")); err != nil {
		return err
	}
	failedItems, err := front.Boolean(values, "failed_items")
	if err != nil {
		return err
	}
	args, err := argsFrom(r, values)
	if err != nil {
		return err
	}
	started, err := s.resubmit(r, id, failedItems, args.Step)
	if err != nil {
		return err
	}
	return s.start.sendStarted(w, r, started, 0)
}

// retryLive requests a retry of a live operation; for an operation with steps the request names the step and the run.
func (s *retries) retryLive(w *front.Response, r *front.Request, id statefs.ID) error {
	rec, err := s.tree.ReadRecord(id)
	if r.ContentLength != 0 || r.URL.Query().Has("step") || err == nil && len(rec.Steps) > 0 {
		return s.act.stepAction(w, r)
	}
	return s.act.requestAction(w, r)
}

// liveDuplicate returns the live operation that does the same work as an operation in failed_manual. The daemon does
// not run both at once.
func (s *retries) liveDuplicate(id statefs.ID, state statefs.State) (none submit.Outcome, err error) {
	if state != statefs.FailedManual {
		return none, nil
	}
	rec, err := s.tree.ReadRecord(id)
	if err != nil {
		return none, nil //nolint:nilerr // writing the request reports the error
	}
	def := s.catalog.Get(rec.Group, rec.Job)
	if def == nil {
		return none, nil
	}
	other, err := s.intake.FindDuplicate(rec, def.Unique.OnHit)
	if err == nil && other.Record != nil && def.Unique.OnHit == catalog.HitReject {
		return none, &submit.ConflictError{ID: other.Record.ID}
	}
	return other, err
}

// sendDuplicate answers a retry with the live operation that does the same work, as a submit would.
func (s *retries) sendDuplicate(w *front.Response, r *front.Request, other submit.Outcome, err error) error {
	if err != nil {
		return err
	}
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := front.AllowParameters(values, "wait", "step"); err != nil {
		return err
	}
	if _, err := front.WaitTime(values.Get("wait")); err != nil {
		return err
	}
	return s.start.sendStarted(w, r, other, 0)
}

// resubmit submits a new operation that repeats the unfinished and failed work of an ended one. If step is not empty,
// it also repeats the work from that step on.
func (s *retries) resubmit(r *front.Request, id statefs.ID, failedItems bool,
	step string,
) (none submit.Outcome, err error) {
	old, err := statefs.ReadSubmitted(s.tree, id)
	if errors.Is(err, fs.ErrNotExist) {
		return none, s.view.goneError(id)
	}
	if err != nil {
		return none, err
	}
	if !old.Status.Terminal() {
		return none, notLive(id) // the marker is gone, and the terminal record not yet written
	}
	nothing := front.Refuse(http.StatusConflict, "Operation '%s' has succeeded: there is nothing to retry", id).With("id",
		id)
	if old.Result == statefs.Success && (len(old.Steps) == 0 || !anyUndone(old.Steps) && step == "") {
		return none, nothing
	}
	if failedItems && old.FailedN == 0 {
		return none, front.Refuse(http.StatusConflict, "Operation '%s' has no failed items", id).With("id", id)
	}
	// The current definition of the job applies: a fix of it may be the reason for the retry.
	def := s.catalog.Get(old.Group, old.Job)
	if def == nil {
		return none, front.Refuse(http.StatusConflict, "Operation '%s' cannot be retried: there is no job %s/%s any more", id,
			old.Group, old.Job).With("id", id)
	}
	list, err := inheritSteps(def, old, step)
	if err == nil && step == "" && old.FailedN > 0 {
		err = s.resetFailedSteps(def, old, list)
	}
	if err != nil {
		return none, err
	}
	if len(list) > 0 && !anyUndone(list) {
		return none, nothing
	}
	given, err := old.EffectiveParams()
	if err != nil {
		return none, err
	}
	params, err := def.BindJSON(given)
	if err != nil {
		return none, front.Refuse(http.StatusConflict, "Operation '%s' cannot be retried with the current definition of its job: %s",
			id, err).With("id", id)
	}
	started, err := s.start.begin(r, submit.Request{
		Definition: def, Params: params, Options: submit.Options{Tags: old.Tags, Priority: &old.Priority}, RetryOf: &id,
		FailedItems: failedItems,
		Steps:       list,
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := s.tree.ReadRecord(id); errors.Is(missing, fs.ErrNotExist) {
			return none, s.view.goneError(id) // deleted since
		}
	}
	if err != nil {
		return none, err
	}
	return started[0], nil
}
