package control

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
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
		other, err := s.liveDuplicate(id, state)
		switch {
		case err != nil:
			return err
		case other.Record != nil:
			return s.sendDuplicate(w, r, other)
		}
		return s.retryLive(w, r, id)
	} else if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	q := r.Query("failed_items", "wait", "step", "strict")
	q.Wait()
	failedItems := q.Boolean("failed_items", false)
	args := argsFrom(r, q)
	if err := q.Err(); err != nil {
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
func (s *retries) sendDuplicate(w *front.Response, r *front.Request, other submit.Outcome) error {
	q := r.Query("wait", "step")
	q.Wait()
	if err := q.Err(); err != nil {
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
	request, err := s.repetition(old, failedItems, step)
	if err != nil {
		return none, err
	}
	started, err := s.start.begin(r, request)
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

// repetition returns the submit of resubmit.
func (s *retries) repetition(old *statefs.Record, failedItems bool, step string) (none submit.Request, err error) {
	id := old.ID
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
	return submit.Request{
		Definition: def, Params: params, Options: submit.Options{Tags: old.Tags, Priority: &old.Priority}, RetryOf: &id,
		FailedItems: failedItems,
		Steps:       list,
	}, nil
}

// inheritSteps returns the steps of the operation that retries an ended one, nil for a job without steps. Steps that
// are done there are done here, except the step from, if it is not "", and its dependents. When all required steps are
// done, the operation is made for the optional ones, which become required.
func inheritSteps(def *catalog.Definition, old *statefs.Record, from string) ([]steps.Step, error) {
	list, graph := def.NewSteps(), def.Graph()
	if len(list) == 0 {
		if from != "" {
			return nil, front.Invalid("step", "job %s has no steps", def.Address())
		}
		return nil, nil
	}
	if from != "" && graph.Find(from) == nil {
		return nil, front.Invalid("step", "there is no step '%s'; the steps of %s are %s", front.Printable(from, 64),
			def.Address(), acts.StepNames(list))
	}
	settled := steps.CarryOver(old.Steps)
	for i := range list {
		s := &list[i]
		if done := steps.Find(settled, s.Name); done != nil && done.Status.Done() {
			optional, lane, limits := s.Optional, s.Lane, s.Limits // of the current definition
			*s = *done
			s.Optional, s.Lane, s.Limits = optional, lane, limits
			s.ClearRuns()
			s.ItemsFrom, s.RedoFrom = 0, 0 // run numbers of the other operation
		}
	}
	for i := range list {
		if lacksOutputs(def, &list[i]) {
			graph.RestartFrom(list, list[i].Name)
		}
	}
	if from != "" {
		graph.RestartFrom(list, from)
	}
	if move, _ := graph.NextRequired(list); move == steps.Over {
		for i := range list {
			if !list[i].Status.Done() {
				list[i].Optional = false
			}
		}
	}
	return list, nil
}

// resetFailedSteps resets the steps with failed items, to repeat those items, and all dependents of these steps.
func (s *retries) resetFailedSteps(def *catalog.Definition, old *statefs.Record, list []steps.Step) error {
	failed := make(map[string]bool)
	err := s.tree.ReadItems(old.ID, "", func(line []byte) error {
		var result struct {
			OK   bool   `json:"ok"`
			Run  int    `json:"run"`
			Step string `json:"step"`
		}
		if json.Unmarshal(line, &result) != nil || result.OK || result.Step == "" {
			return nil //nolint:nilerr // a line that the daemon did not write is not a result
		}
		if of := steps.Find(old.Steps, result.Step); of != nil && result.Run >= max(of.ItemsFrom, of.RedoFrom) {
			failed[result.Step] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	graph := def.Graph()
	for i := range list { // in order: dependents of a reset step repeat all of their items
		at := &list[i]
		if !failed[at.Name] || !at.Status.Done() {
			continue
		}
		graph.RestartFrom(list, at.Name)
		at.ItemsFrom = 0 // successful items stay done
	}
	return nil
}

// lacksOutputs reports whether a step is done but lacks an output that the current definition requires.
func lacksOutputs(def *catalog.Definition, s *steps.Step) bool {
	if s.Status != steps.Succeeded {
		return false
	}
	step := def.Step(s.Name)
	return slices.ContainsFunc(step.Outputs, func(name string) bool { return s.Outputs[name] == nil })
}

// anyUndone reports whether any step is not done.
func anyUndone(list []steps.Step) bool {
	return slices.ContainsFunc(list, func(s steps.Step) bool { return !s.Status.Done() })
}
