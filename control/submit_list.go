package control

import (
	"net/http"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// submitEntries is POST /api/v1/operations: one submit as a JSON object, or a list of submits, all or none.
func (s *starter) submitEntries(w *front.Response, r *front.Request) error {
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := front.AllowParameters(values, "wait"); err != nil {
		return err
	}
	wait, applied, err := r.PreferredWait(values)
	if err != nil {
		return err
	}
	body, err := r.ReadBody()
	if err != nil {
		return err
	}
	if submit.IsList(body) {
		if wait > 0 && applied == "" {
			return front.Refuse(http.StatusBadRequest,
				"Invalid parameter 'wait': a list of submits is answered at once").With("parameter", "wait")
		}
		return s.submitList(w, r, body)
	}
	entry, err := submit.ParseEntry(body)
	if err != nil {
		return err
	}
	if err := idempotencyKey(r, &entry.Options); err != nil {
		return err
	}
	request, err := entry.Request(s.catalog)
	if err != nil {
		return err
	}
	started, err := s.begin(r, request)
	if err != nil {
		return err
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	return s.sendStarted(w, r, started[0], wait)
}

// startedJSON is the answer to one entry of a list.
type startedJSON struct {
	ID    statefs.ID    `json:"id"`
	State statefs.State `json:"state"`
	// Code is the status that this submit alone would have had: 201 or 200.
	Code int `json:"code"`
}

// submitList answers 201 when any operation of the list is new.
func (s *starter) submitList(w *front.Response, r *front.Request, body []byte) error {
	if r.Header.Get("Idempotency-Key") != "" {
		return front.Refuse(http.StatusBadRequest,
			"The header Idempotency-Key names one submit: give each entry of a list its own \"idempotency_key\"").With("parameter", "idempotency_key")
	}
	entries, err := submit.ParseList(body)
	if err != nil {
		return err
	}
	requests, err := submit.Requests(s.catalog, entries)
	if err != nil {
		return err
	}
	started, err := s.begin(r, requests...)
	if err != nil {
		return err
	}
	out := struct {
		Operations []startedJSON      `json:"operations"`
		Count      int                `json:"count"`
		Created    int                `json:"created"`
		Durability statefs.Durability `json:"durability"`
	}{Operations: make([]startedJSON, len(started)), Count: len(started), Durability: s.tree.Durability()}
	status := http.StatusOK
	for i, one := range started {
		out.Operations[i] = startedJSON{one.Record.ID, one.State, http.StatusOK}
		if one.New {
			out.Operations[i].Code = http.StatusCreated
			out.Created++
			status = http.StatusCreated
		}
	}
	return w.SendJSON(status, out)
}
