package statefs

import (
	"slices"
	"sync"

	"github.com/jobdir/jobdir/steps"
)

// handover are records that this process has just published and that its daemon has not looked at yet: it need not read back from the disk what
// stands in memory. What is not there is read; so is all that other processes submit. It is safe for concurrent use.
type handover struct {
	mu      sync.Mutex
	open    bool // this process has the lock of the storage
	records map[ID]*Record
}

// mostHanded bounds how many records wait: a daemon takes them within milliseconds, and what it never takes must not stay.
const mostHanded = 4096

// put notes a record before its marker can be seen. The record stays that of the caller.
func (h *handover) put(rec *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return
	}
	if len(h.records) >= mostHanded {
		clear(h.records)
	}
	own := *rec
	own.Transitions, own.Steps = slices.Clip(rec.Transitions), steps.Clone(rec.Steps)
	h.records[rec.ID] = &own
}

func (h *handover) take(id ID) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	rec := h.records[id]
	delete(h.records, id)
	return rec
}

func (h *handover) own(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.records = open, make(map[ID]*Record)
}

// Published returns the record of an operation as this process has published it, once: the first time that it is asked for. The record is the
// caller's. It is that on the disk unless something has changed there since, so it is for who has not had the operation in hand before.
// For any other it is [Tree.ReadRecord].
func (o *Owner) Published(id ID) (*Record, error) {
	if rec := o.handed.take(id); rec != nil {
		return rec, nil
	}
	return o.ReadRecord(id)
}
