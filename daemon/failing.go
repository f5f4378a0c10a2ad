package daemon

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/machine"
)

// failingEntry is a failing operation with a flag for whether its error was logged.
type failingEntry struct {
	api.FailingOperation
	logged bool
}

// failingOperations tracks the operations whose reconcile fails. Each error is logged once, and so
// is the recovery from it. Running out of file descriptors affects all operations at once and is
// logged once a minute.
type failingOperations struct {
	logger   *slog.Logger
	mu       sync.Mutex
	byID     map[statefs.ID]*failingEntry
	warnedAt time.Time // when running out of file descriptors was last logged
}

// failed records that a reconcile failed.
func (t *failingOperations) failed(id statefs.ID, err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byID[id]; known != nil && known.Error == err.Error() {
		known.Tries++
		return
	}
	if t.byID == nil {
		t.byID = make(map[statefs.ID]*failingEntry)
	}
	since, tries := now, 1
	if known := t.byID[id]; known != nil {
		since, tries = known.Since, known.Tries+1
	}
	logged := !machine.OutOfFiles(err)
	t.byID[id] = &failingEntry{api.FailingOperation{ID: id, Error: err.Error(), Since: since, Tries: tries}, logged}
	if !logged {
		if t.warnedAt.IsZero() || now.Sub(t.warnedAt) >= warnInterval {
			t.warnedAt = now
			t.logger.Warn("operations wait for free file descriptors, retrying every second", "id", id, "error", err)
		}
		return
	}
	t.logger.Error("reconcile failed, retrying every second", "id", id, "error", err)
}

// succeeded records that a reconcile succeeded.
func (t *failingOperations) succeeded(id statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byID[id]; known != nil {
		delete(t.byID, id)
		if !known.logged {
			return
		}
		t.logger.Info("reconcile succeeded after failures", "id", id, "tries", known.Tries, "since", known.Since.Format(statefs.StampFormat))
	}
}

// maxFailingListed limits the list: a single cause mostly affects all operations at once.
const maxFailingListed = 20

// list returns the operations that have failed longest, at most maxFailingListed.
func (t *failingOperations) list() []api.FailingOperation {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := slices.SortedFunc(maps.Values(t.byID), func(a, b *failingEntry) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	out := make([]api.FailingOperation, 0, min(len(found), maxFailingListed))
	for _, known := range found[:cap(out)] {
		out = append(out, known.FailingOperation)
	}
	return out
}
