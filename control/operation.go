package control

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/steps"
)

// operationStatus is what the daemon knows of an operation and no file tells.
type operationStatus interface {
	// RecordUnreadable notifies the daemon that the record of a live operation is unusable or gone.
	RecordUnreadable(id statefs.ID)
	// Manages reports whether the daemon manages an operation.
	Manages(id statefs.ID) bool
	// AwaitRequest registers for the outcome of a request that is about to be made.
	AwaitRequest(id statefs.ID, ask statefs.Action) *effect.Waiter
	// Waiting returns why a live operation does not run; false when it runs or is unknown to the daemon.
	Waiting(id statefs.ID) (statefs.Waiting, bool)
}

// viewer describes operations: their records, markers and logs, and what the daemon adds.
type viewer struct {
	tree        *statefs.Tree
	catalog     *catalog.Catalog
	history     *history.Store
	daemon      operationStatus
	definitions definitionCache
}

// describe collects what is known of an operation.
func (s *viewer) describe(id statefs.ID) (api.Operation, error) {
	sight, err := s.tree.ObserveAll(id) // before the record: without a marker, the record read afterwards is terminal
	if err != nil {
		return api.Operation{}, err
	}
	return s.describeSight(id, sight, statefs.AllNames)
}

// describeRow is describe for a row of the live table. Besides its marker it looks up only the given names. Most rows
// have none, and a look for a file that does not exist waits for each change of a busy folder.
func (s *viewer) describeRow(row *history.Row, names statefs.NameSet) (api.Operation, error) {
	names |= statefs.MarkerBit(row.Status)
	sight, err := s.tree.Observe(row.ID, names)
	if err == nil && len(sight.States) == 0 {
		return s.describe(row.ID) // its marker has moved since
	}
	if err != nil {
		return api.Operation{}, err
	}
	return s.describeSight(row.ID, sight, names)
}

// describeSight collects what is known of an operation after a look for these names of it.
func (s *viewer) describeSight(id statefs.ID, sight statefs.Observation, names statefs.NameSet) (api.Operation, error) {
	out := api.Operation{ID: id, Endpoint: id.Endpoint()}
	if err := s.addRecord(&out, len(sight.States) > 0); err != nil {
		return out, err
	}
	rec := out.Record
	out.Requests = sight.Requests
	if len(sight.States) > 0 && names&cancels != 0 {
		for _, ask := range s.tree.Cancelling(id) { // after the look into jobs/: a cancel moves from there to taken/
			if !slices.Contains(out.Requests, ask) {
				out.Requests = append(out.Requests, ask)
			}
		}
	}
	if rec != nil {
		out.State = rec.Status
	}
	if len(sight.States) > 0 {
		// Also when the record is terminal: it is not known to be durable before the marker is removed.
		out.State = sight.States[0]
	}
	if out.Status = out.State; out.State == statefs.Trailing {
		out.Status = statefs.Completed // an operation that has its result is completed, also while optional steps run
	}
	if rec != nil && rec.Next == out.State {
		rec.Next = "" // the marker is renamed already; the next write of the record clears Next on disk
	}
	out.Waiting = s.waiting(out.State, id, rec)
	if out.State == statefs.Queued && rec != nil && rec.Starts == 0 && len(rec.After) > 0 {
		// According to the disk, which may be ahead of the daemon by a moment.
		if person := s.blockingAncestor(rec.After, func(statefs.ID) {}); !person.IsZero() {
			if out.Waiting == nil || out.Waiting.Reason != statefs.WaitsForOthers {
				out.Waiting = &statefs.Waiting{Reason: statefs.WaitsForOthers, HeldBy: person}
			}
			out.Waiting.NeedsPerson = person
		}
	}
	s.addLiveDetails(&out)
	return out, nil
}

// cancels are the names of requests that Cancelling finds in taken/.
var cancels = statefs.Name{Action: statefs.Cancel}.Bit() | statefs.Name{Action: statefs.ForceCancel}.Bit()

// addRecord adds the record. If it is missing or cannot be read, an ended operation gets what the index of the history
// knows instead.
func (s *viewer) addRecord(out *api.Operation, live bool) (err error) {
	out.Record, err = readRecord(s.tree, out.ID, live)
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil || !missing && !isUnreadable(err) {
		return err
	}
	if live && missing {
		if out.Foreign = out.ID.PID() != machine.PID && !s.daemon.Manages(out.ID); !out.Foreign {
			s.daemon.RecordUnreadable(out.ID)
		}
		return nil
	}
	out.Problem = err.Error()
	if !missing {
		s.daemon.RecordUnreadable(out.ID)
	}
	if live {
		return nil
	}
	row, has, indexErr := s.history.Find(out.ID)
	switch {
	case has && indexErr == nil:
		out.Record = row.Record()
		out.Problem += "; this is what the index of the history knows. Look in corrupt/ for what was in its place"
	case missing:
		return s.goneError(out.ID)
	}
	return nil
}

// describeEnd describes an operation by its terminal record.
func (s *viewer) describeEnd(rec *statefs.Record) api.Operation {
	out := api.Operation{ID: rec.ID, Endpoint: rec.ID.Endpoint(), Record: rec, State: rec.Status, Status: rec.Status}
	if rec.Trailing {
		out.State = statefs.Trailing
	}
	s.addLiveDetails(&out)
	return out
}

// waiting returns why a live operation does not run, nil when it runs or a person holds it.
func (s *viewer) waiting(state statefs.State, id statefs.ID, rec *statefs.Record) *statefs.Waiting {
	switch {
	case state == statefs.Queued:
		if why, waits := s.daemon.Waiting(id); waits {
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

// addLiveDetails adds the newest progress, the log length and the steps. They are informational: what cannot be read is
// omitted.
func (s *viewer) addLiveDetails(out *api.Operation) {
	s.showSteps(out)
	if out.Record == nil {
		return
	}
	if out.Record.LogBytes != nil {
		out.LogBytes = *out.Record.LogBytes
	} else if out.State == statefs.Queued && out.Starts == 0 {
		return // it has no log and no progress, and a look for a file that does not exist waits for a busy folder
	} else if log, err := os.Lstat(s.tree.LogPath(out.ID)); err == nil && log.Mode().IsRegular() {
		out.LogBytes = log.Size()
	}
	s.tree.Freshen(out.Record)
}

// recordError maps the error of reading a record that the client named to an answer.
func (s *viewer) recordError(id statefs.ID, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, live := s.tree.State(id); live == nil {
		return front.Refuse(http.StatusNotFound, "Operation '%s' is kept by another program; its output is not here", id).With("id",
			id)
	}
	return s.goneError(id)
}

// goneError answers for an operation without a record: 410 when the index knows that it was pruned or deleted.
func (s *viewer) goneError(id statefs.ID) error {
	if err := s.gone(id); err != nil {
		return err
	}
	return front.Refuse(http.StatusNotFound, "Operation '%s' not found: the storage has no operation with this ID",
		id).With("id", id)
}

// gone refuses a request for an operation that was pruned or deleted; it returns nil for an unknown operation.
func (s *viewer) gone(id statefs.ID) error {
	if _, err := s.tree.ReadRecord(id); isUnreadable(err) {
		return err // the record exists, but is in no list
	}
	gone, err := s.history.Gone(id)
	if err != nil {
		return err
	}
	if gone {
		return front.Refuse(http.StatusGone, "Operation '%s' is gone: it was pruned or deleted", id).With("id", id)
	}
	return nil
}

// maxCachedDefinitions bounds the number of cached earlier definitions.
const maxCachedDefinitions = 200

// definitionCache caches earlier definitions of jobs by hash, once an operation that has one is shown.
type definitionCache struct {
	mu    sync.Mutex
	known map[string]*catalog.Definition
}

// definitionOf returns the definition with which an operation was submitted, nil when it cannot be read.
func (s *viewer) definitionOf(rec *statefs.Record) *catalog.Definition {
	current := s.catalog.Get(rec.Group, rec.Job)
	if rec.Definition == "" || current != nil && current.Hash() == rec.Definition {
		return current
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	if def := s.definitions.known[rec.Definition]; def != nil {
		return def
	}
	def, err := catalog.Stored(s.tree, rec.Definition)
	if err != nil {
		return nil
	}
	if s.definitions.known == nil || len(s.definitions.known) >= maxCachedDefinitions {
		s.definitions.known = make(map[string]*catalog.Definition)
	}
	s.definitions.known[rec.Definition] = def
	return def
}

// showSteps adds the steps in order, with the duration of each, and why a person has to act.
func (s *viewer) showSteps(out *api.Operation) {
	out.Attention = statefs.AttentionOf(out.ID, out.State, out.Record)
	if out.Record == nil || len(out.Record.Steps) == 0 {
		return
	}
	var graph steps.Graph
	if def := s.definitionOf(out.Record); def != nil {
		graph = def.Graph()
	}
	out.Steps = steps.Views(out.Record.Steps, graph, time.Now())
	allDone := out.State != statefs.Trailing
	if out.State.Terminal() || out.State == statefs.Trailing {
		out.AllDone = &allDone
	}
}

// maxAncestors bounds how many dependencies of an operation are checked.
const maxAncestors = 100

// blockingAncestor returns an operation that waits for a person among the direct and transitive dependencies; the zero
// ID if there is none. It calls note for each before it reads the state.
func (s *viewer) blockingAncestor(after []statefs.ID, note func(statefs.ID)) (none statefs.ID) {
	queue, seen := slices.Clone(after), map[statefs.ID]bool{}
	for i := 0; i < len(queue) && len(seen) < maxAncestors; i++ {
		id := queue[i]
		if seen[id] {
			continue
		}
		seen[id] = true
		note(id)
		state, err := s.tree.State(id)
		if err == nil && state.NeedsPerson() {
			return id
		}
		if err != nil || state != statefs.Queued && state != statefs.Scheduled && state != statefs.Paused {
			continue // it has ended, or depends on no other operation
		}
		if rec, err := s.tree.ReadRecord(id); err == nil && rec.Starts == 0 {
			queue = append(queue, rec.After...)
		}
	}
	return none
}
