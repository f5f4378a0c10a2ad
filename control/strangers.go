package control

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// mostStrangers bounds how many operations of other programs are remembered.
const mostStrangers = 10_000

// strangers remembers operations that another program kept, by their markers, for as long as this daemon runs. When one has ended nothing is left of
// it, and its number may be one that this storage has given out too: without this it would look like one that was pruned.
type strangers struct {
	mu    sync.Mutex
	known map[statefs.ID]bool
	order []statefs.ID // the oldest first
}

func (s *strangers) has(id statefs.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

func (s *strangers) add(id statefs.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[id] {
		return
	}
	if s.known == nil {
		s.known = make(map[statefs.ID]bool)
	}
	if len(s.order) == mostStrangers {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
	s.known[id] = true
	s.order = append(s.order, id)
}

// notice remembers operations of which something in jobs/ has changed, where they have a marker and no record. What this process has begun is asked for
// nothing.
func (s *strangers) notice(tree *statefs.Tree, ids []statefs.ID) {
	for _, id := range ids {
		if id.PID() == os.Getpid() || s.has(id) {
			continue
		}
		if _, err := os.Lstat(tree.RecordPath(id)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := tree.State(id); err == nil {
			s.add(id)
		}
	}
}
