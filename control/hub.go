package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// hub wakes the followers of operations. The server has one hub with one watch on jobs/ and one inotify instance for
// the logs, so an idle stream costs no goroutine and no watch of its own.
//
//	jobs/ ──watch.Dir──▶ hub.Run ──▶ followers of the ID: "read the operation again"
//	logs  ──watch.Files─────────────▶ followers of the log: "read the log again"
type hub struct {
	tree *statefs.Tree
	jobs *watch.Dir[statefs.ID]
	logs *watch.Files

	mu        sync.Mutex
	followers map[statefs.ID][]*follower
}

func newHub(tree *statefs.Tree, options watch.Options) (*hub, error) {
	jobs, err := watch.OpenDir(tree.JobsDir(), statefs.IDFromName, options)
	if err != nil {
		return nil, fmt.Errorf("follow operations: %w", err)
	}
	logs := watch.OpenFiles(options)
	return &hub{tree: tree, jobs: jobs, logs: logs, followers: make(map[statefs.ID][]*follower)}, nil
}

// Run wakes followers until ctx ends. After an error followers are no longer woken.
func (h *hub) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var dirErr, logErr error
	group.Go(func() { defer stop(); dirErr = h.jobs.Run(ctx) })
	group.Go(func() { defer stop(); logErr = h.logs.Run(ctx) })
	for {
		select {
		case <-h.jobs.Ready():
			ids, all := h.jobs.Take()
			h.notify(ids, all)
		case <-ctx.Done():
			group.Wait()
			return errors.Join(dirErr, logErr)
		}
	}
}

func (h *hub) close() error { return errors.Join(h.jobs.Close(), h.logs.Close()) }

// notify wakes the followers of ids, or all followers when events may be missing.
func (h *hub) notify(ids []statefs.ID, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all {
		ids = slices.Collect(maps.Keys(h.followers))
	}
	for _, id := range ids {
		for _, f := range h.followers[id] {
			f.markChanged()
		}
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
	if len(list) == 0 {
		delete(h.followers, f.id)
		return
	}
	h.followers[f.id] = list
}
