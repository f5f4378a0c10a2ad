package control

import (
	"errors"
	"io/fs"
	"net/http"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// retry is POST /api/v1/operations/{id}/retry: a live operation that waits for a person or for its next attempt starts again; of an ended
// one a new operation is made, which inherits the items that went well. The effect of that is the new operation: it is durable when it is answered, so there
// is nothing else to wait for.
func (s *Server) retry(w *answer, r *http.Request, p httprouter.Params) error {
	id, err := statefs.ParseID(p.ByName("id"))
	if err != nil {
		return err
	}
	if state, err := s.tree.State(id); err == nil {
		if other, err := s.equalOf(id, state); err != nil || other.Record != nil {
			return s.sendEqual(w, r, other, err)
		}
		return s.retryLive(w, r, p, id)
	} else if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "failed_items", "wait", "step"); err != nil {
		return err
	}
	if _, err := waitFrom(values.Get("wait")); err != nil {
		return err
	}
	failedItems, err := boolean(values, "failed_items")
	if err != nil {
		return err
	}
	args, err := s.argsFrom(w, r, values)
	if err != nil {
		return err
	}
	started, err := s.again(r, id, failedItems, args.Step)
	if err != nil {
		return err
	}
	return s.sendStarted(w, r, started, 0)
}

// retryLive asks for a retry of a live operation; of one with steps the request names the step and the run.
func (s *Server) retryLive(w *answer, r *http.Request, p httprouter.Params, id statefs.ID) error {
	rec, err := s.tree.ReadRecord(id)
	if r.ContentLength != 0 || r.URL.Query().Has("step") || err == nil && len(rec.Steps) > 0 {
		return s.act(w, r, p)
	}
	return s.ask(w, r, p)
}

// equalOf returns the live operation that does the same as one that waits for a person: the daemon does not start that one again beside it.
func (s *Server) equalOf(id statefs.ID, state statefs.State) (none submit.Outcome, err error) {
	if state != statefs.FailedManual {
		return none, nil
	}
	rec, err := s.tree.ReadRecord(id)
	if err != nil {
		return none, nil //nolint:nilerr // the request says what is wrong
	}
	def := s.catalog.Get(rec.Group, rec.Job)
	if def == nil {
		return none, nil
	}
	other, err := s.intake.Equal(rec, def.Unique.OnHit)
	if err == nil && other.Record != nil && def.Unique.OnHit == catalog.HitReject {
		return none, &submit.ConflictError{ID: other.Record.ID}
	}
	return other, err
}

// sendEqual answers a retry with the operation that does the same and lives, as it does a submit.
func (s *Server) sendEqual(w *answer, r *http.Request, other submit.Outcome, err error) error {
	if err != nil {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "wait", "step"); err != nil {
		return err
	}
	if _, err := waitFrom(values.Get("wait")); err != nil {
		return err
	}
	return s.sendStarted(w, r, other, 0)
}

// again submits the operation that does again what an ended one did not finish well, and from a step on what it did, when one is given.
func (s *Server) again(r *http.Request, id statefs.ID, failedItems bool, step string) (none submit.Outcome, err error) {
	old, err := s.tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return none, s.goneOrNever(id)
	}
	if err != nil {
		return none, err
	}
	if !old.Status.Terminal() {
		return none, notLive(id) // its marker is gone, and its end not yet written
	}
	nothing := refuse(http.StatusConflict, "Operation '%s' has ended well: there is nothing to do again", id).with("id", id)
	if old.Result == statefs.Success && (len(old.Steps) == 0 || !undone(old.Steps) && step == "") {
		return none, nothing
	}
	if failedItems && old.FailedN == 0 {
		return none, refuse(http.StatusConflict, "Operation '%s' has no failed items", id).with("id", id)
	}
	// It is done again as its job is defined now, which may be why it is done again.
	def := s.catalog.Get(old.Group, old.Job)
	if def == nil {
		return none, refuse(http.StatusConflict, "Operation '%s' cannot be done again: there is no job %s/%s any more", id, old.Group, old.Job).with("id", id)
	}
	list, err := inheritSteps(def, old, step)
	if err == nil && step == "" && old.FailedN > 0 {
		err = s.redoFailed(def, old, list)
	}
	if err != nil {
		return none, err
	}
	if len(list) > 0 && !undone(list) {
		return none, nothing
	}
	given, err := old.ParamsNow()
	if err != nil {
		return none, err
	}
	params, err := def.BindJSON(given)
	if err != nil {
		return none, refuse(http.StatusConflict, "Operation '%s' cannot be done again as its job is defined now: %s", id, err).with("id", id)
	}
	started, err := s.start(r, submit.Request{
		Definition: def, Params: params, Options: submit.Options{Tags: old.Tags, Priority: &old.Priority}, RetryOf: &id, FailedItems: failedItems,
		Steps: list,
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := s.tree.ReadRecord(id); errors.Is(missing, fs.ErrNotExist) {
			return none, s.goneOrNever(id) // deleted meanwhile
		}
	}
	if err != nil {
		return none, err
	}
	return started[0], nil
}
