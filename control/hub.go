package control

import (
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// hub wakes the followers of operations. The server has one hub with one inotify instance for the logs, so an idle
// stream costs no goroutine and no watch of its own.
//
//	daemon ──OnChange────▶ followers of the ID: "read the operation again"
//	logs  ──watch.Files──▶ followers of the log: "read the log again"
type hub struct {
	tree *statefs.Tree
	logs *watch.Files

	mu        sync.Mutex
	followers map[statefs.ID][]*follower
}

func newHub(tree *statefs.Tree) *hub {
	return &hub{tree: tree, logs: watch.OpenFiles(watch.Options{}), followers: make(map[statefs.ID][]*follower)}
}

// notify wakes the followers of an operation. It does not block.
func (h *hub) notify(id statefs.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.followers[id] {
		f.markChanged()
	}
}

func (h *hub) subscribe(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers[f.id] = append(h.followers[f.id], f)
}

func (h *hub) unsubscribe(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.DeleteFunc(h.followers[f.id], func(other *follower) bool { return other == f })
	if h.followers[f.id] = list; len(list) == 0 {
		delete(h.followers, f.id)
	}
}
