package control

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// liveOperation is a live operation according to its marker.
type liveOperation struct {
	id      statefs.ID
	state   statefs.State
	foreign bool
}

// ownRecords caches which live operations have a record, or as strangers which markers have none. A record exists
// before its marker and as long as its operation, so it is looked up once.
type ownRecords struct {
	mu    sync.Mutex
	known map[statefs.ID]bool
}

// liveStatus is what the daemon knows of all live operations together.
type liveStatus interface {
	// Ready is closed when the daemon has loaded every live operation and reconciles it.
	Ready() <-chan struct{}
	// Live returns the daemon's live operations.
	Live() []history.Live
	// LiveIndex returns the live table, and the IDs whose markers may differ from it at this moment, with what is known
	// of each. An operation that the daemon has not loaded has no row. ok is false while only a listing of jobs/ can
	// tell which operations are live.
	LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, ok bool)
}

// liveTable knows which operations are live, and which of them are foreign.
type liveTable struct {
	tree       *statefs.Tree
	catalog    *catalog.Catalog
	intake     *submit.Intake
	daemon     liveStatus
	ownRecords ownRecords
	strangers  ownRecords // foreign markers that lists have met
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
		foreign := s.strangers.has(marker.ID)
		if !foreign {
			if foreign, err = s.isForeign(marker.ID); err != nil {
				return nil, err
			}
		}
		if foreign && !s.isStarting() {
			s.strangers.add(marker.ID) // final: a ready daemon has restored the records that a crash lost
		}
		out = append(out, liveOperation{marker.ID, marker.State, foreign})
	}
	s.ownRecords.retain(seen)
	s.strangers.retain(seen)
	slices.SortFunc(out, func(a, b liveOperation) int { return compareIDs(a.id, b.id) })
	return out, nil
}

// numbered returns the operations with a number: live ones, and ended ones that were submitted today or yesterday.
func (s *liveTable) numbered(live []liveOperation, number uint64) ([]liveOperation, error) {
	var out []liveOperation
	for _, op := range live {
		if op.id.Sequence() == number {
			out = append(out, op)
		}
	}
	recent, err := s.tree.FindRecent(number)
	if err != nil {
		return nil, err
	}
	for _, id := range recent {
		if !slices.ContainsFunc(out, func(op liveOperation) bool { return op.id == id }) {
			out = append(out, liveOperation{id: id})
		}
	}
	return out, nil
}

func compareIDs(a, b statefs.ID) int {
	return cmp.Or(cmp.Compare(a.Sequence(), b.Sequence()), strings.Compare(a.String(), b.String()))
}

// isForeign reports whether an operation with a marker is foreign: it has no record, and its process ID is not ours.
func (s *liveTable) isForeign(id statefs.ID) (bool, error) {
	if id.PID() == os.Getpid() || s.ownRecords.has(id) {
		return false, nil
	}
	switch _, err := s.tree.ReadRecord(id); {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil && !isUnreadable(err):
		return false, err
	}
	s.ownRecords.add(id)
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

// isUnreadable reports whether err means that a record exists but cannot be used.
func isUnreadable(err error) bool {
	_, corrupt := errors.AsType[*statefs.CorruptError](err)
	return corrupt || errors.Is(err, statefs.ErrNewerVersion) || errors.Is(err, fs.ErrPermission)
}

func (o *ownRecords) has(id statefs.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

func (o *ownRecords) add(id statefs.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = make(map[statefs.ID]bool)
	}
	o.known[id] = true
}

// retain forgets the IDs that are not in live.
func (o *ownRecords) retain(live map[statefs.ID]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.known {
		if !live[id] {
			delete(o.known, id)
		}
	}
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

// wrongGroup refuses to control an operation through another group's path. It names the right path of a live operation,
// and the group and the state of an ended one.
func (s *actions) wrongGroup(c *controlRequest, of membership) error {
	id, asked := c.id, front.Printable(c.group, 64)
	where := "/api/v1/operations/" + id.String()
	if _, err := s.tree.State(id); errors.Is(err, statefs.ErrNotLive) {
		rec, err := s.tree.ReadDurableEnd(id)
		if err != nil || rec == nil {
			return s.alreadyEnded(id)
		}
		ended := front.Refuse(http.StatusNotFound, "Operation '%s' is not of group '%s' but of '%s', and it is already %s: see %s",
			id, asked, rec.Group, rec.Status, where)
		return withRetryHint(ended.With("id", id).With("state", rec.Status).With("location", where), id, c.action)
	} else if err != nil {
		return err
	}
	if of.group != "" {
		where = "/" + of.group + "/control"
	}
	return front.Refuse(http.StatusNotFound, "Operation '%s' is not of group '%s': control it by %s", id, asked, where).
		With("id", id).With("location", where)
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
	rec, err := s.tree.ReadRecord(id)
	switch {
	case err == nil:
		return membership{rec.Group, endpoint}, nil
	case errors.Is(err, fs.ErrNotExist), isUnreadable(err):
		return membership{"", endpoint}, nil
	}
	return membership{}, err
}
