package control

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
)

// finished is GET /api/v1/finished, the completion feed.
func (s *Server) finished(w *answer, r *http.Request, _ httprouter.Params) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "after", "wait", "limit"); err != nil {
		return err
	}
	after, err := numberFrom(values, "after", 0, 0, 1<<53)
	if err != nil {
		return err
	}
	limit, err := numberFrom(values, "limit", mostListed, 1, mostFinished)
	if err != nil {
		return err
	}
	wait, err := waitFrom(values.Get("wait"))
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	rows, last, err := s.history.Finished(ctx, after, int(limit))
	if beyond, ok := errors.AsType[*history.BeyondError](err); ok {
		return refuse(http.StatusBadRequest, "Invalid parameter 'after': %s", beyond).with("parameter", "after").with("last", beyond.Last)
	}
	if err != nil {
		return err
	}
	ends := []endedJSON{}
	for i := range rows {
		ends = append(ends, endedOf(&rows[i]))
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"finished": ends, "count": len(ends), "last": last})
}

// mostFinished is how many ends one answer of the feed has at most.
const mostFinished = 1000

// remove is DELETE /api/v1/operations/{id}.
func (s *Server) remove(w *answer, r *http.Request, p httprouter.Params) error {
	id, _, err := idAndQuery(r, p) // somebody may believe in a dry run
	if err != nil {
		return err
	}
	if err := s.isOurs(id); err != nil {
		return err
	}
	if err := s.status.Delete(r.Context(), id); err != nil {
		return s.keptOrGone(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pin is POST /api/v1/operations/{id}/pin. It is answered when the record says so, whether somebody wants to wait for that or not.
func (s *Server) pin(w *answer, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "pinned", "wait")
	if err != nil {
		return err
	}
	if _, err := waitFrom(values.Get("wait")); err != nil {
		return err
	}
	pinned := true
	if text := values.Get("pinned"); text != "" {
		if pinned, err = strconv.ParseBool(text); err != nil {
			return refuse(http.StatusBadRequest, "Invalid parameter 'pinned': %s must be true or false", shownValue(text)).with("parameter", "pinned")
		}
	}
	if err := s.isOurs(id); err != nil {
		return err
	}
	if err := s.status.Pin(r.Context(), id, pinned); err != nil {
		return s.keptOrGone(id, err)
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"success": true, "id": id, "pinned": pinned})
}

// isOurs refuses what is only for operations of this storage.
func (s *Server) isOurs(id statefs.ID) error {
	if _, err := s.tree.State(id); err != nil {
		return nil //nolint:nilerr // what has ended is ours
	}
	foreign, err := s.isForeign(id)
	if foreign {
		return refuse(http.StatusConflict, "Operation '%s' is kept by another program", id).with("id", id)
	}
	return err
}

// keptOrGone turns the reasons for which an operation is not deleted or pinned into answers.
func (s *Server) keptOrGone(id statefs.ID, err error) error {
	if held, ok := errors.AsType[*history.HeldError](err); ok {
		return refuse(http.StatusConflict, "%s", held).with("id", id).with("reason", held.Reason)
	}
	if errors.Is(err, history.ErrUnknown) {
		return s.goneOrNever(id)
	}
	return err
}

// goneOrNever tells an operation that was pruned or deleted from one that never was: it has no record, and its number was given
// out. Of one that another program kept nothing is left when it has ended.
func (s *Server) goneOrNever(id statefs.ID) error {
	if s.hub.strangers.has(id) {
		return notLive(id)
	}
	given, err := s.tree.Given(id.Sequence())
	if err != nil {
		return err
	}
	if _, err := s.tree.ReadRecord(id); isUnreadable(err) {
		return err // it is there, and in no list
	}
	if given {
		return refuse(http.StatusGone, "Operation '%s' is gone: it was pruned or deleted", id).with("id", id)
	}
	return notFound(id)
}

// prune is POST /api/v1/prune.
func (s *Server) prune(w *answer, r *http.Request, _ httprouter.Params) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "dry_run"); err != nil {
		return err
	}
	dryRun := false
	if text := values.Get("dry_run"); text != "" {
		if dryRun, err = strconv.ParseBool(text); err != nil {
			return refuse(http.StatusBadRequest, "Invalid parameter 'dry_run': %s must be true or false", shownValue(text)).with("parameter", "dry_run")
		}
	}
	victims, err := s.status.Prune(r.Context(), dryRun)
	if err != nil {
		return err
	}
	var size int64
	for _, v := range victims {
		size += v.Bytes
	}
	shown := append([]history.Victim{}, victims[:min(len(victims), mostFinished)]...)
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"operations": shown, "count": len(victims), "bytes": size, "dry_run": dryRun})
}
