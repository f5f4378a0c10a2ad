package daemon

import (
	"cmp"
	"maps"
	"os"
	"slices"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

// expected holds the operations that are submitted, or about to be, and that no reconcile has
// entered into the queue yet. Reconciles run concurrently, so a later operation may be entered
// first. It must not start first when that breaks a promise:
//
//   - Operations with the same key start in the order of their numbers. This process announces its
//     operations before they become visible (statefs.SubmitListener), and an announced operation keeps its
//     turn (queue.Queue.KeepTurn). Of an operation that another process submits, only the number is
//     known until its reconcile. Until it is entered, operations with a key and a higher number wait
//     outside of the queue.
//   - A list is admitted as a whole: its operations wait outside of the queue until all are entered.
//
// expected is part of admission and is guarded by its lock.
type expected struct {
	announced map[statefs.ID]*submitList // nil for an operation that is announced alone
	// foreign holds operations of other processes that an event reported. foreignOrder lists them by number,
	// lowest first; an ID that is no longer in foreign is dropped when it comes to the front.
	foreign      map[statefs.ID]bool
	foreignOrder []statefs.ID
	// blocked holds the operations that are entered and wait for others.
	blocked map[statefs.ID]blockedItem
	// late holds the operations that were expected at the last sweep.
	late []statefs.ID
}

// submitList is a list of submits with operations that are not entered yet.
type submitList struct{ missing int }

// blockedItem waits outside of the queue: for the rest of its list, or, if list is nil, for
// operations of other processes.
type blockedItem struct {
	queue.Item
	list *submitList
}

func newExpected() expected {
	return expected{
		announced: make(map[statefs.ID]*submitList), foreign: make(map[statefs.ID]bool),
		blocked: make(map[statefs.ID]blockedItem),
	}
}

// Expect implements statefs.SubmitListener.
func (a *admission) Expect(recs ...*statefs.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var whole *submitList
	if len(recs) > 1 {
		whole = &submitList{missing: len(recs)}
	}
	for _, rec := range recs {
		if _, announced := a.announced[rec.ID]; !announced && rec.Key != "" {
			a.queue.KeepTurn(itemOfRecord(rec))
		}
		a.announced[rec.ID] = whole
	}
}

// isAnnounced reports whether an operation is announced and not entered.
func (a *admission) isAnnounced(id statefs.ID) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, is := a.announced[id]
	return is
}

// expectBatch expects all operations of a list that another process submits, when the daemon takes
// over the first of them. It reads them from the list's file. If that file is gone, all operations
// of the list are already visible.
func (rc *reconciler) expectBatch(rec *statefs.Record) error {
	if rec.Batch == nil || rec.ID.PID() == os.Getpid() || rec.Starts > 0 || !isClosed(rc.ready) {
		return nil
	}
	rc.batchMu.Lock()
	defer rc.batchMu.Unlock()
	if rc.admission.isAnnounced(rec.ID) {
		return nil
	}
	ids, err := rc.owner.Batches.IDs(*rec.Batch)
	var recs []*statefs.Record
	for _, id := range ids {
		if !rc.manages(id) {
			recs = append(recs, &statefs.Record{ID: id})
		}
	}
	if len(recs) > 1 {
		rc.admission.Expect(recs...)
	}
	return err
}

// Withdraw removes operations that were expected and are not submitted.
func (a *admission) Withdraw(recs ...*statefs.Record) {
	a.update(func(q *queue.Queue) {
		for _, rec := range recs {
			if _, is := a.announced[rec.ID]; is {
				a.arriveLocked(rec.ID)
				q.Remove(rec.ID)
			}
		}
	})
}

// noteForeign records operations that an event reported, before any of them is reconciled.
func (a *admission) noteForeign(keys []watchKey, manages func(statefs.ID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []statefs.ID
	for _, key := range keys {
		if id := key.id; id.PID() != os.Getpid() && !a.foreign[id] && !manages(id) {
			a.foreign[id] = true
			found = append(found, id)
		}
	}
	bySequence := func(x, y statefs.ID) int { return cmp.Compare(x.Sequence(), y.Sequence()) }
	slices.SortFunc(found, bySequence) // so that each is inserted near the end
	for _, id := range found {
		at, _ := slices.BinarySearchFunc(a.foreignOrder, id, bySequence)
		a.foreignOrder = slices.Insert(a.foreignOrder, at, id)
	}
}

// waitLocked puts an operation into the queue, or lets it wait outside of the queue.
func (a *admission) waitLocked(item queue.Item) {
	whole := a.announced[item.ID]
	if o, is := a.blocked[item.ID]; is {
		whole = o.list
	}
	a.arriveLocked(item.ID)
	o := blockedItem{item, whole}
	if a.mustWaitLocked(o) {
		a.queue.KeepTurn(item)
		a.blocked[item.ID] = o
		return
	}
	a.queue.Enqueue(item)
}

func (a *admission) mustWaitLocked(o blockedItem) bool {
	if o.list != nil && o.list.missing > 0 {
		return true
	}
	if o.Key == "" || o.KeyOrder == queue.AnyOrder || o.Begun {
		return false
	}
	return len(a.foreignOrder) > 0 && a.foreignOrder[0].Sequence() < o.ID.Sequence()
}

// arriveLocked records that an operation is entered, or will not be. It enqueues the operations
// that waited only for this one.
func (a *admission) arriveLocked(id statefs.ID) {
	delete(a.blocked, id)
	whole, announced := a.announced[id]
	foreign := a.foreign[id]
	if !announced && !foreign {
		return
	}
	delete(a.announced, id)
	delete(a.foreign, id)
	for len(a.foreignOrder) > 0 && !a.foreign[a.foreignOrder[0]] {
		a.foreignOrder = a.foreignOrder[1:]
	}
	if whole != nil {
		whole.missing--
	}
	if whole != nil && whole.missing > 0 && !foreign {
		return
	}
	for other, o := range a.blocked {
		if !a.mustWaitLocked(o) {
			delete(a.blocked, other)
			a.queue.Enqueue(o.Item)
		}
	}
	if len(a.announced)+len(a.blocked) == 0 && whole != nil { // an emptied map keeps the memory of a long list
		a.announced, a.blocked = make(map[statefs.ID]*submitList), make(map[statefs.ID]blockedItem)
	}
}

// reconciled is called when a reconcile of an operation is done, with the operation's standing in
// the queue and the error of the reconcile.
func (a *admission) reconciled(id statefs.ID, stands decide.Standing, err error) {
	a.mu.Lock()
	if done := a.pendingStarts[id]; done != nil {
		delete(a.pendingStarts, id)
		close(done)
	}
	_, announced := a.announced[id]
	if !announced && !a.foreign[id] || err != nil && stands == decide.Outside {
		a.mu.Unlock()
		return
	}
	a.arriveLocked(id)
	if stands == decide.Outside {
		a.queue.Remove(id)
	}
	wanted := a.admitReadyLocked()
	a.mu.Unlock()
	a.notify(wanted, statefs.ID{})
}

// overdue returns the operations that have been expected since the last sweep. Either their
// reconcile was missed, or they have nothing on disk to reconcile.
func (a *admission) overdue() []statefs.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := slices.DeleteFunc(a.late, func(id statefs.ID) bool {
		_, announced := a.announced[id]
		return !announced && !a.foreign[id]
	})
	a.late = slices.AppendSeq(slices.Collect(maps.Keys(a.announced)), maps.Keys(a.foreign))
	return late
}
