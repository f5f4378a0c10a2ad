package daemon

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Trouble is something that fails again and again, such as writing a record to a full disk.
type Trouble struct {
	ID    statefs.ID `json:"id,omitzero"`
	Error string     `json:"error"`
	Since time.Time  `json:"since"`
	Tries int        `json:"tries"`
}

// troubles remembers which operations could not be dealt with, so that each reason is said once, and that it is over as well.
type troubles struct {
	logger *slog.Logger
	mu     sync.Mutex
	of     map[statefs.ID]*Trouble
}

// failed notes that a look failed.
func (t *troubles) failed(id statefs.ID, err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.of[id]; known != nil && known.Error == err.Error() {
		known.Tries++
		return
	}
	if t.of == nil {
		t.of = make(map[statefs.ID]*Trouble)
	}
	since, tries := now, 1
	if known := t.of[id]; known != nil {
		since, tries = known.Since, known.Tries+1
	}
	t.of[id] = &Trouble{ID: id, Error: err.Error(), Since: since, Tries: tries}
	t.logger.Error("look failed; it is tried again every second, and said when it works", "id", id, "error", err)
}

// worked notes that a look went well.
func (t *troubles) worked(id statefs.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.of[id]; known != nil {
		delete(t.of, id)
		t.logger.Info("look works again", "id", id, "tries", known.Tries, "since", known.Since.Format(statefs.StampFormat))
	}
}

// mostTroubles is how many are told: one reason mostly hits all operations at once.
const mostTroubles = 20

// list returns the oldest.
func (t *troubles) list() []Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := slices.SortedFunc(maps.Values(t.of), func(a, b *Trouble) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
	out := make([]Trouble, 0, min(len(found), mostTroubles))
	for _, known := range found[:cap(out)] {
		out = append(out, *known)
	}
	return out
}
