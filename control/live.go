package control

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/notify"
)

// liveOperation is a live operation according to its marker.
type liveOperation struct {
	id      statefs.ID
	state   statefs.State
	foreign bool
}

// liveStatus is what the daemon knows of all live operations together.
type liveStatus interface {
	// Ready is closed when the daemon has loaded every live operation and reconciles it.
	Ready() <-chan struct{}
	// Live returns the daemon's live operations.
	Live() []history.Live
	// LiveIndex returns the live table, and the IDs whose markers may differ from it at this moment, with what is known
	// of each. An operation that the daemon has not loaded has no row. names returns the names besides its marker that
	// an operation may have. ok is false while only a listing of jobs/ can tell which operations are live.
	LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, names func(statefs.ID) statefs.NameSet, ok bool)
}

// liveTable knows which operations are live, and which of them are foreign.
type liveTable struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	daemon  liveStatus
	// ownRecords has the IDs of live operations with a record, foreignIDs those of the foreign markers in earlier lists.
	// A record exists before its marker and as long as its operation, so it is looked up once.
	ownRecords, foreignIDs sync.Map
}

// list returns the live operations, sorted by number.
func (s *liveTable) list() ([]liveOperation, error) {
	listing, err := s.tree.List()
	if err != nil {
		return nil, err
	}
	var out []liveOperation
	seen := make(map[statefs.ID]bool, len(listing.Markers))
	for _, marker := range listing.Markers {
		if seen[marker.ID] {
			continue // the marker was renamed during the listing
		}
		seen[marker.ID] = true
		_, foreign := s.foreignIDs.Load(marker.ID)
		if !foreign {
			if foreign, err = s.isForeign(marker.ID); err != nil {
				return nil, err
			}
		}
		if foreign && !s.isStarting() {
			s.foreignIDs.Store(marker.ID, true) // final: a ready daemon has restored the records that a crash lost
		}
		out = append(out, liveOperation{marker.ID, marker.State, foreign})
	}
	retain(&s.ownRecords, seen)
	retain(&s.foreignIDs, seen)
	slices.SortFunc(out, func(a, b liveOperation) int {
		return cmp.Or(cmp.Compare(a.id.Sequence(), b.id.Sequence()), strings.Compare(a.id.String(), b.id.String()))
	})
	return out, nil
}

// isForeign reports whether an operation with a marker is foreign: it has no record, and its process ID is not ours.
func (s *liveTable) isForeign(id statefs.ID) (bool, error) {
	if _, ours := s.ownRecords.Load(id); ours || id.PID() == machine.PID {
		return false, nil
	}
	switch _, err := s.tree.ReadRecord(id); {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil && !isUnreadable(err):
		return false, err
	}
	s.ownRecords.Store(id, true)
	return false, nil
}

// readRecord reads the record of an operation. Without a marker, the record of a submit that was cut off counts as
// missing.
func readRecord(tree *statefs.Tree, id statefs.ID, marked bool) (*statefs.Record, error) {
	if marked {
		return tree.ReadRecord(id)
	}
	return statefs.ReadSubmitted(tree, id)
}

// recordOf returns a record, nil if there is no readable one.
func recordOf(tree *statefs.Tree, id statefs.ID) (*statefs.Record, error) {
	rec, err := tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) || isUnreadable(err) {
		return nil, nil //nolint:nilnil // documented
	}
	return rec, err
}

// isUnreadable reports whether err means that a record exists but cannot be used.
func isUnreadable(err error) bool {
	_, corrupt := errors.AsType[*statefs.CorruptError](err)
	return corrupt || errors.Is(err, statefs.ErrNewerVersion) || errors.Is(err, fs.ErrPermission)
}

// retain forgets the IDs that are not in live.
func retain(known *sync.Map, live map[statefs.ID]bool) {
	known.Range(func(key, _ any) bool {
		if id, ok := key.(statefs.ID); ok && !live[id] {
			known.Delete(key)
		}
		return true
	})
}

// membership is the group of an operation. The endpoint name alone is ambiguous: a-b-c can be b-c of group a, or c of
// group a-b.
type membership struct {
	group    string // "" when only the endpoint name is known
	endpoint string
}

func (m membership) is(group string) bool {
	if m.group != "" {
		return m.group == group
	}
	return strings.HasPrefix(m.endpoint, group+"-")
}

// groupOf returns the group of an operation. Of a foreign one, only the endpoint may be known.
func (s *liveTable) groupOf(id statefs.ID, foreign bool) (membership, error) {
	endpoint := id.Endpoint()
	if def := s.catalog.ByEndpoint(endpoint); def != nil {
		return membership{def.Group, endpoint}, nil
	}
	if foreign {
		return membership{"", endpoint}, nil
	}
	rec, err := recordOf(s.tree, id)
	if rec == nil {
		return membership{"", endpoint}, err
	}
	return membership{rec.Group, endpoint}, nil
}

// liveView are the live operations for a list.
type liveView struct {
	*history.LiveView
	foreign map[statefs.ID]bool
	// names returns the names besides its marker that an operation may have.
	names func(statefs.ID) statefs.NameSet
}

func allNames(statefs.ID) statefs.NameSet { return statefs.AllNames }

// liveView returns the live operations for a list. The markers decide, so an operation
// is listed as soon as its submit is acknowledged. The daemon has the sorted rows and knows which of them may be
// outdated; liveView checks only the markers of these.
func (s *liveTable) liveView(q *history.Query) (liveView, error) {
	living, unsettled, names, ok := s.daemon.LiveIndex()
	if !ok {
		rows, foreign, err := s.liveRows(q)
		return liveView{&history.LiveView{Index: new(history.LiveIndex), Rows: rows}, foreign, allNames}, err
	}
	foreign := make(map[statefs.ID]bool)
	out := liveView{&history.LiveView{Index: living}, foreign, names}
	var mu sync.Mutex
	err := statefs.ForEachParallel(unsettled, statefs.ParallelLooks, func(l history.Live) error {
		state, err := l.State, error(nil)
		// The state of a foreign marker is that of its last event; with 100,000 of them, a list checks none.
		if state == "" || l.Row != nil && !s.tree.HasMarker(l.ID, state) {
			state, err = s.tree.State(l.ID)
		}
		mu.Lock()
		defer mu.Unlock()
		if l.Row != nil {
			out.Hidden = append(out.Hidden, l.Row)
		}
		if errors.Is(err, statefs.ErrNotLive) {
			return nil
		}
		if err != nil {
			return err
		}
		if l.Row != nil && l.State == state {
			out.Rows = append(out.Rows, l.Row)
			return nil
		}
		row, ours, err := s.liveRow(liveOperation{id: l.ID, state: state}, l.Row, q.Group)
		if err != nil {
			return err
		}
		if !ours && l.ID.PID() != machine.PID {
			foreign[l.ID] = true
			s.foreignIDs.Store(l.ID, true) // final: a ready daemon has restored the records that a crash lost
		}
		out.Rows = append(out.Rows, row.Pack())
		return nil
	})
	if err == nil {
		retain(&s.foreignIDs, foreign)
	}
	return out, err
}

// liveRows returns the rows of the live operations by listing jobs/, which costs time proportional to their number.
// It adds the operations that only the daemon knows, because their marker is being renamed at this moment.
func (s *liveTable) liveRows(q *history.Query) (rows []history.Packed, foreign map[statefs.ID]bool, err error) {
	known := make(map[statefs.ID]history.Live)
	for _, l := range s.daemon.Live() {
		known[l.ID] = l
	}
	markers, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	foreign = make(map[statefs.ID]bool)
	for _, op := range markers {
		l, ok := known[op.id]
		delete(known, op.id)
		if ok && l.State == op.state {
			rows = append(rows, l.Row)
			continue
		}
		row, _, err := s.liveRow(op, l.Row, q.Group)
		if err != nil {
			return nil, nil, err
		}
		foreign[op.id] = op.foreign
		rows = append(rows, row.Pack())
	}
	for id, l := range known {
		switch _, err := s.tree.State(id); {
		case err == nil:
			rows = append(rows, l.Row)
		case !errors.Is(err, statefs.ErrNotLive):
			return nil, nil, err
		}
	}
	return rows, foreign, nil
}

// liveRow returns the row of a live operation with the state of its marker. has is its row in the daemon's memory, or
// nil. known is false when there is no record either.
func (s *liveTable) liveRow(op liveOperation, has history.Packed, group string) (row history.Row, known bool, err error) {
	known = true
	if row, err = has.Unpack(); err != nil {
		if _, met := s.foreignIDs.Load(op.id); met {
			row = s.unknownRow(op.id, group)
			row.Status, row.Number = op.state, 0
			return row, false, nil
		}
		rec, err := s.tree.ReadRecord(op.id)
		switch {
		case err == nil:
			row = history.RowOf(rec)
		case errors.Is(err, fs.ErrNotExist), isUnreadable(err):
			row = s.unknownRow(op.id, group)
		default:
			return row, false, err
		}
		known = !errors.Is(err, fs.ErrNotExist)
	}
	row.Status, row.Number = op.state, 0
	return row, known, nil
}

// unknownRow returns the row of an operation that is only known by its ID.
func (s *liveTable) unknownRow(id statefs.ID, group string) history.Row {
	at := id.Time(time.Local)
	row := history.Row{ID: id, Created: at, Updated: at}
	if def := s.catalog.ByEndpoint(id.Endpoint()); def != nil {
		row.Group, row.Job = def.Group, def.Name
	} else if strings.HasPrefix(id.Endpoint(), group+"-") {
		row.Group = group // a guess by the name
	}
	return row
}

// A starting daemon answers before it has loaded every live operation: reads, requests and the control of lanes do not
// wait for that. Counts are refused until then: they would be too low, and a producer would take the daemon for idle.

// startupRetryAfter is the Retry-After of a starting daemon, in seconds: a start loads thousands of operations per
// second.
const startupRetryAfter = "1"

// refuseAtStartup returns a refusal until the daemon has loaded every live operation, then nil.
func (s *liveTable) refuseAtStartup() error {
	if s.isStarting() {
		return front.Refuse(http.StatusServiceUnavailable,
			"The daemon is starting and has not listed the live operations yet: try again in a second").
			WithHeader("Retry-After", startupRetryAfter)
	}
	return nil
}

func (s *liveTable) isStarting() bool { return !notify.IsClosed(s.daemon.Ready()) }

// awaitStartup returns when the daemon has loaded every live operation.
func (s *liveTable) awaitStartup(ctx context.Context) error {
	select {
	case <-s.daemon.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
