package control

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
)

// operationJSON is an operation as the API shows it: its record, and what is true of it now.
type operationJSON struct {
	// ID stands outside of the record for foreign operations, which have none.
	ID statefs.ID `json:"id"`
	*statefs.Record
	Endpoint string        `json:"endpoint"`
	State    statefs.State `json:"state"`
	// Status repeats State: the one in the record is as old as the record.
	Status   statefs.State     `json:"status"`
	Foreign  bool              `json:"foreign,omitempty"`
	Asks     []statefs.Ask     `json:"requests,omitempty"`
	Progress *statefs.Progress `json:"progress,omitempty"`
	// LogBytes is the length of the log now, or the one at which it was sealed.
	LogBytes int64 `json:"log_bytes"`
	// Durability says what the answer to a submit promises.
	Durability statefs.Durability `json:"durability,omitempty"`
	// Problem says why there is no record where there should be one.
	Problem string `json:"problem,omitempty"`
}

// operation is GET /api/v1/operations/{id}.
func (s *Server) operation(w *answer, r *http.Request, p httprouter.Params) error {
	id, err := statefs.ParseID(p.ByName("id"))
	if err != nil {
		return err
	}
	out, err := s.describe(id)
	if err != nil {
		return err
	}
	return s.sendJSON(w, r, http.StatusOK, out)
}

// describe puts together what is known of an operation.
func (s *Server) describe(id statefs.ID) (operationJSON, error) {
	out := operationJSON{ID: id, Endpoint: id.Endpoint()}
	sight, err := s.tree.Look(id) // before the record: a marker that is gone means that the record is terminal
	if err != nil {
		return out, err
	}
	rec, err := s.tree.ReadRecord(id)
	switch {
	case err == nil:
		out.Record = rec
	case errors.Is(err, fs.ErrNotExist) && len(sight.States) == 0:
		return out, notFound(id)
	case errors.Is(err, fs.ErrNotExist):
		out.Foreign = id.PID() != os.Getpid()
	case isUnreadable(err):
		out.Problem = err.Error()
	default:
		return out, err
	}
	out.Asks = sight.Asks
	if rec != nil {
		out.State = rec.Status
	}
	if len(sight.States) > 0 && !out.State.Terminal() {
		out.State = sight.States[0]
	}
	out.Status = out.State
	if rec != nil && rec.Next == out.State {
		rec.Next = "" // the marker is there already; the next write of the record clears it on disk
	}
	s.measure(&out)
	return out, nil
}

// measure adds progress and log length. Both are for show: what cannot be read is left out.
func (s *Server) measure(out *operationJSON) {
	if out.Record == nil {
		return
	}
	if out.Record.LogBytes != nil {
		out.LogBytes = *out.Record.LogBytes
	} else if log, err := s.tree.OpenLog(out.ID); err == nil {
		if info, err := log.Stat(); err == nil {
			out.LogBytes = info.Size()
		}
		_ = log.Close() // opened for reading
	}
	if progress, err := s.tree.ReadProgress(out.ID); err == nil {
		out.Progress = &progress
	}
}

// unknown turns the error of a record that was asked for by name into an answer.
func (s *Server) unknown(id statefs.ID, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, live := s.tree.State(id); live == nil {
		return refuse(http.StatusNotFound, "Operation '%s' is kept by another program; its output is not here", id).with("id", id)
	}
	return notFound(id)
}

const (
	mostListed = 200
	listed     = 100
)

// operations is GET /api/v1/operations.
func (s *Server) operations(w *answer, r *http.Request, _ httprouter.Params) error {
	filter, err := filterFrom(r)
	if err != nil {
		return err
	}
	all, err := s.live()
	if err != nil {
		return err
	}
	if filter.number > 0 {
		if all, err = s.numbered(all, filter.number); err != nil {
			return err
		}
	}
	total, next := 0, ""
	page := []operationJSON{}
	for _, op := range all {
		if fits, err := s.fits(op, filter); err != nil {
			return err
		} else if !fits {
			continue
		}
		total++
		if filter.after != nil && orderOf(op.id, *filter.after) <= 0 {
			continue
		}
		if len(page) == filter.limit {
			if filter.limit > 0 {
				next = page[len(page)-1].ID.String()
			}
			continue
		}
		shown, err := s.describe(op.id)
		if _, gone := errors.AsType[*refusal](err); gone {
			continue // it ended meanwhile
		}
		if err != nil {
			return err
		}
		page = append(page, shown)
	}
	w.Header().Set("X-Total-Count", strconv.Itoa(total))
	out := map[string]any{"operations": page, "count": len(page), "total": total, "next": nil}
	if next != "" {
		out["next"] = next
	}
	return s.sendJSON(w, r, http.StatusOK, out)
}

// filter is the query of a list.
type filter struct {
	states          []statefs.State
	group, endpoint string
	limit           int
	after           *statefs.ID
	number          uint64 // 0: any
}

func filterFrom(r *http.Request) (filter, error) {
	f := filter{limit: listed}
	values, err := query(r)
	if err != nil {
		return f, err
	}
	if err := onlyThese(values, "state", "group", "endpoint", "limit", "after", "number"); err != nil {
		return f, err
	}
	f.group, f.endpoint = values.Get("group"), values.Get("endpoint")
	if text := values.Get("limit"); text != "" {
		f.limit, err = strconv.Atoi(text)
		if err != nil || f.limit < 0 || f.limit > mostListed {
			return f, refuse(http.StatusBadRequest, "Invalid parameter 'limit': must be 0 to %d", mostListed).with("parameter", "limit")
		}
	}
	if text := values.Get("number"); text != "" {
		f.number, err = strconv.ParseUint(text, 10, 64)
		if err != nil || f.number == 0 {
			return f, refuse(http.StatusBadRequest, "Invalid parameter 'number': must be the number at the end of an ID, 1 or more").with("parameter", "number")
		}
	}
	if text := values.Get("after"); text != "" {
		id, err := statefs.ParseID(text)
		if err != nil {
			return f, err
		}
		f.after = &id
	}
	if values.Get("state") == "" {
		return f, nil
	}
	for name := range strings.SplitSeq(values.Get("state"), ",") {
		state := statefs.State(strings.TrimSpace(name))
		if !state.Live() {
			return f, refuse(http.StatusBadRequest, "Invalid parameter 'state': '%s' is no live state", printable(name, 32)).
				with("parameter", "state").with("states", statefs.LiveStates())
		}
		f.states = append(f.states, state)
	}
	return f, nil
}

func (s *Server) fits(op liveOperation, f filter) (bool, error) {
	if len(f.states) > 0 && !slices.Contains(f.states, op.state) {
		return false, nil
	}
	if f.endpoint != "" && op.id.Endpoint() != f.endpoint {
		return false, nil
	}
	if f.group == "" {
		return true, nil
	}
	of, err := s.groupOf(op.id)
	return err == nil && of.is(f.group), err
}

// groupOperations is GET /{group}/operations.
func (s *Server) groupOperations(w *answer, r *http.Request, p httprouter.Params) error {
	group := p.ByName("group")
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := onlyThese(values, "endpoint"); err != nil {
		return err
	}
	all, err := s.live()
	if err != nil {
		return err
	}
	type row struct {
		ID      statefs.ID    `json:"operation_id"`
		State   statefs.State `json:"state"`
		Foreign bool          `json:"foreign,omitempty"`
	}
	rows := []row{}
	endpoint := values.Get("endpoint")
	for _, op := range all {
		of, err := s.groupOf(op.id)
		if err != nil {
			return err
		}
		if !of.is(group) || (endpoint != "" && endpoint != of.endpoint && group+"-"+endpoint != of.endpoint) {
			continue
		}
		rows = append(rows, row{op.id, op.state, op.foreign})
	}
	if len(rows) == 0 {
		if err := s.knownGroup(group); err != nil {
			return err
		}
	}
	return s.sendJSON(w, r, http.StatusOK, map[string]any{"operations": rows, "count": len(rows)})
}
