package control

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// operationJSON is an operation as the API shows it: its record, and what is true of it now.
type operationJSON struct {
	// ID stands outside of the record for foreign operations, which have none.
	ID statefs.ID `json:"id"`
	*statefs.Record
	Endpoint string        `json:"endpoint"`
	State    statefs.State `json:"state"`
	// Status repeats State, but that what is trailing is completed: the one in the record is as old as the record.
	Status  statefs.State `json:"status"`
	Foreign bool          `json:"foreign,omitempty"`
	Asks    []statefs.Ask `json:"requests,omitempty"`
	// Steps take the place of those of the record: they say more.
	Steps []steps.View `json:"steps,omitempty"`
	// AllDone says of an operation with steps that has its result whether its optional steps have ended too.
	AllDone *bool `json:"all_done,omitempty"`
	// Attention says why it goes on only when a person acts, and what helps.
	Attention *statefs.Attention `json:"attention,omitempty"`
	// Waiting says why it does not run, where only the queue knows.
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// LogBytes is the length of the log now, or the one at which it was sealed.
	LogBytes int64 `json:"log_bytes"`
	// Durability says what the answer to a submit promises.
	Durability statefs.Durability `json:"durability,omitempty"`
	// Problem says why there is no record where there should be one.
	Problem string `json:"problem,omitempty"`
}

// What a wait may be for: the end, when nothing else is asked for.
const (
	forEnd     = "end"
	forRunning = string(statefs.Running)
)

// operation is GET /api/v1/operations/{id}.
func (s *Server) operation(w *answer, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "wait", "for")
	if err != nil {
		return err
	}
	var runs []statefs.State
	switch values.Get("for") {
	case "", forEnd:
	case forRunning:
		runs = []statefs.State{statefs.Running}
	default:
		return refuse(http.StatusBadRequest, "Invalid parameter 'for': %s must be %s or %s", shownValue(values.Get("for")), forEnd, forRunning).with("parameter", "for")
	}
	wait, applied, err := submitWait(r, values)
	if err != nil {
		return err
	}
	out, err := s.describe(id)
	if err != nil {
		return err
	}
	if wait > 0 && out.Record != nil && out.State.Live() && (!waitsForPerson(out.State) || s.tree.AskedToGoOn(id)) && !slices.Contains(runs, out.State) {
		out = s.afterWait(r, out, wait, runs...)
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	s.askAgain(w, out)
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
		return out, s.goneOrNever(id)
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
	if len(sight.States) > 0 {
		out.State = sight.States[0] // also when the record has its end: that is not known to be durable before the marker goes
	}
	out.Status = statusOf(out.State)
	if rec != nil && rec.Next == out.State {
		rec.Next = "" // the marker is there already; the next write of the record clears it on disk
	}
	out.Waiting = s.waiting(out.State, id, rec)
	if out.State == statefs.Queued && rec != nil && rec.Starts == 0 && len(rec.After) > 0 {
		// By the disk, which may say it a moment before the daemon does.
		if person := s.personBehind(rec.After, func(statefs.ID) {}); !person.IsZero() {
			if out.Waiting == nil || out.Waiting.Reason != statefs.WaitsForOthers {
				out.Waiting = &statefs.Waiting{Reason: statefs.WaitsForOthers, HeldBy: person}
			}
			out.Waiting.NeedsPerson = person
		}
	}
	s.measure(&out)
	return out, nil
}

// statusOf is how an operation in a state is: one that has its result is completed, also while optional steps are at work.
func statusOf(state statefs.State) statefs.State {
	if state == statefs.Trailing {
		return statefs.Completed
	}
	return state
}

// describeEnd is describe for an operation whose end is known.
func (s *Server) describeEnd(rec *statefs.Record) operationJSON {
	out := operationJSON{ID: rec.ID, Endpoint: rec.ID.Endpoint(), Record: rec, State: rec.Status, Status: rec.Status}
	if rec.Trailing {
		out.State = statefs.Trailing
	}
	s.measure(&out)
	return out
}

// waiting says why a live operation does not run, nil when it does or a person holds it.
func (s *Server) waiting(state statefs.State, id statefs.ID, rec *statefs.Record) *statefs.Waiting {
	switch {
	case state == statefs.Queued:
		if why, waits := s.status.Waiting(id); waits {
			return &why
		}
	case (state == statefs.Scheduled || state == statefs.FailedRetryable) && rec != nil && rec.DueAt != nil:
		why := &statefs.Waiting{Reason: statefs.WaitsForTime, Until: rec.DueAt, Lane: rec.Lane}
		if n := len(rec.Transitions); n > 0 {
			why.Since = &rec.Transitions[n-1].At
		}
		return why
	}
	return nil
}

// measure adds the newest progress, the log length and the steps. They are for show: what cannot be read is left out.
func (s *Server) measure(out *operationJSON) {
	s.showSteps(out)
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
	s.tree.Freshen(out.Record)
}

// unknown turns the error of a record that was asked for by name into an answer.
func (s *Server) unknown(id statefs.ID, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, live := s.tree.State(id); live == nil {
		return refuse(http.StatusNotFound, "Operation '%s' is kept by another program; its output is not here", id).with("id", id)
	}
	return s.goneOrNever(id)
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
