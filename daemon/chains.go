package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// reasonDependency is the reason of an operation that waits for a person because a parent has not
// succeeded.
const reasonDependency = "dependency"

// chains tracks operations that wait for other operations to end, their parents. A child names its
// parents when it is submitted, and they exist by then, so there are no cycles. The maps only tell
// which children to reconcile when a parent ends; the reconcile decides by the records.
type chains struct {
	mu       sync.Mutex
	children map[statefs.ID]map[statefs.ID]struct{} // waiting children of each parent
	waiting  map[statefs.ID]awaited                 // the parent that each waiting child waits for
	// all parents of each live operation, ended or not
	parents map[statefs.ID][]statefs.ID
}

// setParents sets the parents of a live operation; none if it has ended or no longer waits for
// them. They are kept until then, because the operation may read their outcome in any state.
func (c *chains) setParents(child statefs.ID, parents []statefs.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(parents) == 0 {
		delete(c.parents, child)
		return
	}
	if c.parents == nil {
		c.parents = make(map[statefs.ID][]statefs.ID)
	}
	c.parents[child] = parents
}

// addGuards protects the parents of live operations from deletion.
func (c *chains) addGuards(g *history.Guards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for child, parents := range c.parents {
		g.ReferAfter(child, parents...)
	}
}

// awaited is a parent that has not ended, and the time since when the child waits for it.
type awaited struct {
	parent statefs.ID
	since  time.Time
}

// addWait notes that a child waits for a parent, and since when the child is queued.
func (c *chains) addWait(child, parent statefs.ID, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.children == nil {
		c.children, c.waiting = make(map[statefs.ID]map[statefs.ID]struct{}), make(map[statefs.ID]awaited)
	}
	if c.children[parent] == nil {
		c.children[parent] = make(map[statefs.ID]struct{})
	}
	c.children[parent][child] = struct{}{}
	c.waiting[child] = awaited{parent, since}
}

// removeWait notes that a child no longer waits for a parent.
func (c *chains) removeWait(child statefs.ID, parents []statefs.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.waiting[child]; !known {
		return
	}
	delete(c.waiting, child)
	for _, parent := range parents {
		delete(c.children[parent], child)
		if len(c.children[parent]) == 0 {
			delete(c.children, parent)
		}
	}
}

// waitingChildren returns the children that wait for an operation.
func (c *chains) waitingChildren(parent statefs.ID) []statefs.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	children := make([]statefs.ID, 0, len(c.children[parent]))
	for child := range c.children[parent] {
		children = append(children, child)
	}
	return children
}

// awaitedParent returns the parent that a child waits for.
func (c *chains) awaitedParent(child statefs.ID) (awaited, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	on, waits := c.waiting[child]
	return on, waits
}

// maxAncestors bounds how many ancestors of an operation are checked.
const maxAncestors = 100

// ancestors returns the parents of an operation, their parents, and so on, the nearest first.
func (c *chains) ancestors(child statefs.ID) []statefs.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []statefs.ID
	seen := map[statefs.ID]bool{}
	for at := -1; at < len(all) && len(all) < maxAncestors; at++ {
		of := child
		if at >= 0 {
			of = all[at]
		}
		for _, parent := range c.parents[of] {
			if !seen[parent] && len(all) < maxAncestors {
				seen[parent] = true
				all = append(all, parent)
			}
		}
	}
	return all
}

// ancestorNeedingPerson returns the nearest ancestor that waits for a person, or the zero ID.
func (d *Daemon) ancestorNeedingPerson(child statefs.ID) (none statefs.ID) {
	for _, id := range d.chains.ancestors(child) {
		if d.stateOf(id).NeedsPerson() {
			return id
		}
	}
	return none
}

// enqueueChildren enqueues the children that wait for an operation which has ended.
func (d *Daemon) enqueueChildren(parent statefs.ID) {
	for _, child := range d.chains.waitingChildren(parent) {
		d.reconcileQueue.enqueue(child)
	}
}

// waitsForParents reports whether a queued operation waits for its parents. If a parent has ended
// without the required result, the operation is left to a person.
func (d *Daemon) waitsForParents(op *operation) (waits bool, err error) {
	if len(op.rec.After) == 0 || op.rec.Starts > 0 {
		return false, nil
	}
	var met time.Time
	for _, parent := range op.rec.After {
		d.chains.addWait(op.id(), parent, op.rec.Since()) // before the parent is read, so that its end is not missed
		ended, err := d.readEnd(parent)
		if err != nil {
			return true, err
		}
		switch {
		case ended == nil:
			return true, nil
		case ended.FinishedAt != nil && ended.FinishedAt.After(met):
			met = *ended.FinishedAt
		}
		if op.rec.Require != statefs.RequireEnd && ended.Status != statefs.Completed {
			d.chains.removeWait(op.id(), op.rec.After)
			return true, d.parentFailed(op, ended)
		}
	}
	d.chains.removeWait(op.id(), op.rec.After)
	op.eligibleAt = met
	return false, nil
}

// readEnd returns the record of an operation that has ended, or nil if it is live. For a record
// that is missing or cannot be read it returns a substitute with the reason.
func (d *Daemon) readEnd(id statefs.ID) (*statefs.Record, error) {
	if state, err := d.owner.State(id); state != statefs.Trailing && !errors.Is(err, statefs.ErrNotLive) {
		return nil, err // checked before the record: if the marker is gone, the record is terminal
	}
	rec, err := d.owner.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return &statefs.Record{ID: id, Status: statefs.Cancelled, Reason: "its record was removed"}, nil
	}
	if corrupt, ok := errors.AsType[*statefs.CorruptError](err); ok || errors.Is(err, statefs.ErrNewerVersion) {
		reason := "its record is of a newer version"
		if ok {
			reason = "its record cannot be read: " + corrupt.Error()
		}
		return &statefs.Record{ID: id, Status: statefs.Failed, Reason: reason}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how operation %s ended: %w", id, err)
	}
	if !rec.Status.Terminal() {
		return nil, nil // its marker was removed manually, and its end is not recorded yet
	}
	return rec, nil
}

// parentFailed leaves an operation to a person because a parent has not succeeded.
func (d *Daemon) parentFailed(op *operation, parent *statefs.Record) error {
	what := string(parent.Status)
	if parent.Reason != "" {
		what += ", " + parent.Reason
	}
	message := fmt.Sprintf("operation %s, which it comes after, has not succeeded (%s)", parent.ID, what)
	if op.rec.Reason != reasonDependency { // on a full disk this code runs again
		d.logLine(op, fmt.Sprintf("  ERROR: %s. 'jobdir retry %s' starts it all the same, 'jobdir cancel' ends it.", message,
			op.id()))
	}
	op.rec.Reason, op.rec.Error = reasonDependency, &statefs.Fault{Code: "dependency", Message: message}
	if err := d.transition(op, statefs.CauseDependency); err != nil {
		return err
	}
	return d.persist(op)
}
