package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// retentionStatus deletes what has ended.
type retentionStatus interface {
	// Delete removes a finished operation, with the errors of history.Store.Delete.
	Delete(ctx context.Context, id statefs.ID) error
	// Pin protects an operation from deletion, or ends that. The error wraps history.ErrUnknown if it does not exist.
	Pin(ctx context.Context, id statefs.ID, pinned bool) error
	// Prune deletes everything past its retention; with dryRun it only returns the victims.
	Prune(ctx context.Context, dryRun bool) ([]history.Victim, error)
}

// retention deletes operations, and keeps them.
type retention struct {
	tree   *statefs.Tree
	view   *viewer
	live   *liveTable
	daemon retentionStatus
}

// remove is DELETE /api/v1/operations/{id}.
func (s *retention) remove(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r) // refuses parameters: a client may expect dry_run to work
	if err := q.Err(); err != nil {
		return err
	}
	if err := s.refuseForeign(id); err != nil {
		return err
	}
	if err := s.daemon.Delete(r.Context(), id); err != nil {
		return s.refusal(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pin is POST /api/v1/operations/{id}/pin. It answers after the record is written, with or without the parameter wait.
func (s *retention) pin(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r)
	q.Wait()
	pinned := q.Boolean("pinned", true)
	if err := q.Err(); err != nil {
		return err
	}
	if err := s.refuseForeign(id); err != nil {
		return err
	}
	if err := s.daemon.Pin(r.Context(), id, pinned); err != nil {
		return s.refusal(id, err)
	}
	return w.SendJSON(http.StatusOK, api.Pinned{Success: true, ID: id, Pinned: pinned})
}

// refuseForeign refuses a request that only applies to operations of this storage.
func (s *retention) refuseForeign(id statefs.ID) error {
	if _, err := s.tree.State(id); err != nil {
		return nil //nolint:nilerr // ended operations are never foreign
	}
	foreign, err := s.live.isForeign(id)
	if foreign {
		return front.Refuse(http.StatusConflict, "Operation '%s' is kept by another program", id).With("id", id)
	}
	return err
}

// refusal maps the errors of deleting and pinning to answers, and nil to nil.
func (s *retention) refusal(id statefs.ID, err error) error {
	if held, ok := errors.AsType[*history.HeldError](err); ok {
		return front.Refuse(http.StatusConflict, "%s", held).With("id", id).With("reason", held.Reason)
	}
	if errors.Is(err, history.ErrUnknown) {
		return s.view.goneError(id)
	}
	return err
}

// prune is POST /api/v1/prune.
func (s *retention) prune(w *front.Response, r *front.Request) error {
	dryRun, err := dryRunOf(r)
	if err != nil {
		return err
	}
	victims, err := s.daemon.Prune(r.Context(), dryRun)
	if err != nil {
		return err
	}
	out := api.Pruned{Count: len(victims), DryRun: dryRun, Operations: []api.PrunedOperation{}}
	for i, v := range victims {
		out.Bytes += v.Bytes
		if i < maxFinished {
			out.Operations = append(out.Operations, api.PrunedOperation(v))
		}
	}
	return w.SendJSON(http.StatusOK, out)
}

// dryRunOf returns the parameter dry_run. It refuses a body: a client may expect one with dry_run to work, as at
// /api/v1/bulk.
func dryRunOf(r *front.Request) (bool, error) {
	q := r.Query()
	dryRun := q.Boolean("dry_run", false)
	if err := q.Err(); err != nil {
		return false, err
	}
	body, err := r.ReadBody()
	if err == nil && len(body) > 0 {
		err = front.Refuse(http.StatusBadRequest, "A body means nothing here: dry_run is a parameter, as in %s?dry_run=true",
			r.URL.Path)
	}
	return dryRun, err
}
