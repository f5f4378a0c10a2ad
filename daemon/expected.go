package daemon

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
)

// expected says which operations wait outside of the queue, although they could start. Reconciles run
// concurrently, so a later operation may be placed first. It must not start first when that breaks a promise:
//
//   - Operations with the same key start in the order of their numbers. The table has the operations of
//     this process when they get their numbers (statefs.SubmitListener), and an operation that arrives
//     keeps its turn (queue.Queue.KeepTurn). Of an operation that another process submits, the table
//     knows nothing until its reconcile. Until then, operations with a key and a higher number wait.
//   - A list is admitted as a whole: its operations wait until none of them arrives any more.
//
// expected is part of admission and is guarded by its lock.
type expected struct {
	// arriving counts the operations that arrive, by list.
	arriving map[statefs.ID]int
	// foreign holds operations of other processes that an event reported. foreignOrder lists them by number,
	// lowest first; an ID that is no longer in foreign is dropped when it comes to the front.
	foreign      map[statefs.ID]bool
	foreignOrder []statefs.ID
	// blocked holds the operations that wait for others.
	blocked map[statefs.ID]blockedItem
	// late holds the operations that were expected at the last sweep.
	late map[statefs.ID]bool
	// arrived counts the submitted operations that no reconcile has placed yet. A later submit must not start first.
	arrived int
	// submitted holds the operations that start with their submit, until a reconcile begins their work.
	submitted submittedStarts
}

// submittedStart is the start of an operation that is a part of its submit.
type submittedStart struct {
	def    *catalog.Definition
	params catalog.Params
	marked bool // its marker was made
}

// submittedStarts are the starts that are a part of a submit. It has a lock of its own.
type submittedStarts struct {
	lockedMap[statefs.ID, submittedStart]
}

// mark notes that the marker of an operation was made, and reports whether the operation is there.
func (s *submittedStarts) mark(id statefs.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, is := s.m[id]
	if is {
		w.marked = true
		s.m[id] = w
	}
	return is
}

// blockedItem waits outside of the queue: for the rest of its list, or for operations of other processes.
type blockedItem struct {
	*queue.Item
	list *statefs.ID
}

// expectations returns the snapshots of operations that are about to be submitted, all of one list.
func expectations(recs []*statefs.Record) []*live.Snapshot {
	var list *statefs.ID
	if len(recs) > 1 {
		list = new(recs[0].ID)
	}
	all := make([]*live.Snapshot, len(recs))
	for i, rec := range recs {
		all[i] = &live.Snapshot{ID: rec.ID, Place: live.Place{Standing: decide.Arriving}, List: list}
		if rec.Key != "" {
			all[i].Place.Item = itemOfRecord(rec)
		}
	}
	return all
}

// noteForeign records operations that an event reported, before any of them is reconciled.
func (a *admission) noteForeign(keys []watchKey, manages func(statefs.ID) bool) {
	var found []statefs.ID
	for _, key := range keys {
		if key.id.PID() != machine.PID && !manages(key.id) {
			found = append(found, key.id)
		}
	}
	bySequence := func(x, y statefs.ID) int { return cmp.Compare(x.Sequence(), y.Sequence()) }
	slices.SortFunc(found, bySequence) // so that each is inserted near the end
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range found {
		if !a.foreign[id] {
			a.foreign[id] = true
			at, _ := slices.BinarySearchFunc(a.foreignOrder, id, bySequence)
			a.foreignOrder = slices.Insert(a.foreignOrder, at, id)
		}
	}
}

// forgetForeignLocked removes an operation that the table has now, or never will have, and reports
// whether it was recorded.
func (a *expected) forgetForeignLocked(id statefs.ID) bool {
	was := a.foreign[id]
	delete(a.foreign, id)
	for len(a.foreignOrder) > 0 && !a.foreign[a.foreignOrder[0]] {
		a.foreignOrder = a.foreignOrder[1:]
	}
	return was
}

// countArrivingLocked counts a change of an operation, which arrived with the list before, and reports
// whether no operation of that list arrives any more.
func (a *expected) countArrivingLocked(before, after *statefs.ID) (whole bool) {
	if after != nil {
		a.arriving[*after]++
	}
	if before == nil {
		return false
	}
	if a.arriving[*before]--; a.arriving[*before] > 0 {
		return false
	}
	delete(a.arriving, *before)
	return true
}

func (a *expected) mustWaitLocked(b blockedItem) bool {
	if b.list != nil && a.arriving[*b.list] > 0 {
		return true
	}
	if b.Key == "" || b.KeyOrder == queue.AnyOrder || b.Begun {
		return false
	}
	return len(a.foreignOrder) > 0 && a.foreignOrder[0].Sequence() < b.ID.Sequence()
}

// unblockLocked puts the operations into the queue that need not wait for others any more.
func (a *admission) unblockLocked() {
	for id, b := range a.blocked {
		if !a.mustWaitLocked(b) {
			delete(a.blocked, id)
			a.queue.Enqueue(*b.Item)
		}
	}
	if len(a.blocked) == 0 { // an emptied map keeps the memory of a long list
		a.blocked = make(map[statefs.ID]blockedItem)
	}
}

// reconciled is called when a reconcile of an operation has placed it, with the error of the reconcile.
func (a *admission) reconciled(id statefs.ID, err error) {
	w, submitted := a.submitted.get(id)
	a.mu.Lock()
	if !submitted || w.marked {
		a.endPendingLocked(id)
	}
	if err == nil && a.forgetForeignLocked(id) {
		a.unblockLocked()
		a.changed.Store(true)
	}
	a.mu.Unlock()
	a.admit()
}

// endPendingLocked tells who waits for a start that it has happened or failed.
func (a *admission) endPendingLocked(id statefs.ID) {
	if done := a.pendingStarts[id]; done != nil {
		delete(a.pendingStarts, id)
		close(done)
	}
}

// overdue returns the operations that have been expected since the last sweep. Either their
// reconcile was missed, or they have nothing on disk to reconcile.
func (a *admission) overdue(announced []statefs.ID) (late []statefs.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := maps.Clone(a.foreign)
	for _, id := range announced {
		now[id] = true
	}
	for id := range now {
		if a.late[id] {
			late = append(late, id)
		}
	}
	a.late = now
	return late
}

// queueQuota limits how many operations wait. A submit counts from the moment it is admitted, so that concurrent
// submits cannot exceed the limit together.
type queueQuota struct {
	mu sync.RWMutex // read-locked while an admitted draft enters the table, which then counts it
	// admitted holds the drafts that were admitted, until they are announced or withdrawn.
	admitted lockedMap[statefs.ID, bool]
}

// settle calls count, which counts drafts as waiting or gives them up, and releases their places.
func (q *queueQuota) settle(count func(), drafts ...*statefs.Record) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	count()
	for _, rec := range drafts {
		q.admitted.take(rec.ID)
	}
}
