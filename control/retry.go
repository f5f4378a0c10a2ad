package control

import (
	"errors"
	"io/fs"
	"net/http"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// retry is POST /api/v1/operations/{id}/retry: a live operation that waits for a person or for its next attempt starts again; of an ended
// one a new operation is made, which inherits the items that went well.
func (s *Server) retry(w *answer, r *http.Request, p httprouter.Params) error {
	id, err := statefs.ParseID(p.ByName("id"))
	if err != nil {
		return err
	}
	if _, err := s.tree.State(id); err == nil {
		return s.ask(w, r, p)
	} else if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "failed_items", "wait"); err != nil {
		return err
	}
	wait, err := waitFrom(values.Get("wait"))
	if err != nil {
		return err
	}
	failedItems, err := boolean(values, "failed_items")
	if err != nil {
		return err
	}
	started, err := s.again(r, id, failedItems)
	if err != nil {
		return err
	}
	return s.sendStarted(w, r, started, wait)
}

// again submits the operation that does again what an ended one did not finish well.
func (s *Server) again(r *http.Request, id statefs.ID, failedItems bool) (none submit.Outcome, err error) {
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
	if old.Result == statefs.Success {
		return none, refuse(http.StatusConflict, "Operation '%s' has ended well: there is nothing to do again", id).with("id", id)
	}
	if failedItems && old.FailedN == 0 {
		return none, refuse(http.StatusConflict, "Operation '%s' has no failed items", id).with("id", id)
	}
	// It is done again as its job is defined now, which may be why it is done again.
	def := s.catalog.Get(old.Group, old.Job)
	if def == nil {
		return none, refuse(http.StatusConflict, "Operation '%s' cannot be done again: there is no job %s/%s any more", id, old.Group, old.Job).with("id", id)
	}
	params, err := def.BindJSON(old.Params)
	if err != nil {
		return none, refuse(http.StatusConflict, "Operation '%s' cannot be done again as its job is defined now: %s", id, err).with("id", id)
	}
	started, err := s.start(r, submit.Request{
		Definition: def, Params: params, Options: submit.Options{Tags: old.Tags, Priority: &old.Priority}, RetryOf: &id, FailedItems: failedItems,
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
