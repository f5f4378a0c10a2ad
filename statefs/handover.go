package statefs

import (
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs/steps"
)

// handover holds records that this process has published and its daemon has not reconciled yet, so
// that the daemon need not read them back. Records that are not in it, such as submits of other
// processes, are read from disk. It is safe for concurrent use.
type handover struct {
	mu       sync.Mutex
	open     bool // this process has the lock of the storage
	records  map[ID]*Record
	listener SubmitListener // nil: none
}

// SubmitListener is notified of this process's submits before they are visible in jobs/. Its
// methods must return quickly and may be called from any goroutine.
type SubmitListener interface {
	// Expect is called when an operation with a key gets its number, before the next operation with
	// a key gets one. It is also called with all operations of a list before the first is visible.
	Expect(recs ...*Record)
	// Withdraw is called with expected operations that are not submitted, or not all of them now.
	Withdraw(recs ...*Record)
}

// SetSubmitListener sets the listener for all later submits of this process while it owns the
// storage; nil removes it.
func (o *Owner) SetSubmitListener(to SubmitListener) {
	o.handover.mu.Lock()
	defer o.handover.mu.Unlock()
	o.handover.listener = to
}

func (h *handover) expect(recs ...*Record) {
	if e := h.activeListener(); e != nil {
		e.Expect(recs...)
	}
}

func (h *handover) withdraw(recs ...*Record) {
	if e := h.activeListener(); e != nil {
		e.Withdraw(recs...)
	}
}

func (h *handover) activeListener() SubmitListener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return nil
	}
	return h.listener
}

// maxHandedOver bounds the records held. A daemon takes each within milliseconds; a record that it
// never takes must not stay forever.
const maxHandedOver = 4096

// put adds a record before its marker is visible. The caller keeps its record.
func (h *handover) put(rec *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return
	}
	if len(h.records) >= maxHandedOver {
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

func (h *handover) reset(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.records, h.listener = open, make(map[ID]*Record), nil
}

// ReadPublished returns the record of an operation as this process published it, but only once, on
// the first call. The caller owns the result. It equals the record on disk unless that has changed
// since, so it is only for an operation that the daemon has not activated before. Otherwise it is
// [Tree.ReadRecord].
func (o *Owner) ReadPublished(id ID) (*Record, error) {
	if rec := o.handover.take(id); rec != nil {
		return rec, nil
	}
	return o.ReadRecord(id)
}
