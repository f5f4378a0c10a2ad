package control

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// liveOperation is one operation as its marker says it.
type liveOperation struct {
	id      statefs.ID
	state   statefs.State
	foreign bool
}

// ours remembers which live operations have a record. A record stays as long as its operation, so it is asked for once.
type ours struct {
	mu    sync.Mutex
	known map[statefs.ID]bool
}

// live lists the live operations in the order of their numbers.
func (s *Server) live() ([]liveOperation, error) {
	listing, err := s.tree.List()
	if err != nil {
		return nil, err
	}
	var out []liveOperation
	seen := make(map[statefs.ID]bool, len(listing.Markers))
	for _, marker := range listing.Markers {
		if seen[marker.ID] {
			continue // it was renamed while the folder was read
		}
		seen[marker.ID] = true
		foreign, err := s.isForeign(marker.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, liveOperation{marker.ID, marker.State, foreign})
	}
	s.ours.keep(seen)
	slices.SortFunc(out, func(a, b liveOperation) int { return orderOf(a.id, b.id) })
	return out, nil
}

// numbered returns the live operations that have a number, and ended ones that were submitted today or yesterday.
func (s *Server) numbered(live []liveOperation, number uint64) ([]liveOperation, error) {
	var out []liveOperation
	for _, op := range live {
		if op.id.Sequence() == number {
			out = append(out, op)
		}
	}
	recent, err := s.tree.Recent(number)
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

func orderOf(a, b statefs.ID) int {
	return cmp.Or(cmp.Compare(a.Sequence(), b.Sequence()), strings.Compare(a.String(), b.String()))
}

// isForeign reports whether an operation with a marker belongs to a program that the daemon did not start: it has no record and
// a process ID that is not ours.
func (s *Server) isForeign(id statefs.ID) (bool, error) {
	if id.PID() == os.Getpid() || s.ours.has(id) {
		return false, nil
	}
	switch _, err := s.tree.ReadRecord(id); {
	case errors.Is(err, fs.ErrNotExist):
		if _, live := s.tree.State(id); live == nil {
			s.hub.strangers.add(id)
		}
		return true, nil
	case err != nil && !isUnreadable(err):
		return false, err
	}
	s.ours.add(id)
	return false, nil
}

// isUnreadable reports whether a record is there and cannot be used.
func isUnreadable(err error) bool {
	_, corrupt := errors.AsType[*statefs.CorruptError](err)
	return corrupt || errors.Is(err, statefs.ErrNewerVersion)
}

func (o *ours) has(id statefs.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

func (o *ours) add(id statefs.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = make(map[statefs.ID]bool)
	}
	o.known[id] = true
}

// keep forgets what is live no longer.
func (o *ours) keep(live map[statefs.ID]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.known {
		if !live[id] {
			delete(o.known, id)
		}
	}
}

// membership says which group an operation belongs to. A name alone does not always say it: a-b-c can be b-c of group a and c of
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

func (s *Server) groupOf(id statefs.ID) (membership, error) {
	endpoint := id.Endpoint()
	if def := s.catalog.ByEndpoint(endpoint); def != nil {
		return membership{def.Group, endpoint}, nil
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
