package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
)

// reasonDependency is the reason of an operation that waits for a person because one that it comes after has not succeeded.
const reasonDependency = "dependency"

// chains are the queued operations that come after others which have not ended. A child names its parents when it is submitted, and they
// are there by then, so there are no cycles. What is in memory is only who is to be looked at when a parent ends: a look decides by the
// records.
type chains struct {
	mu       sync.Mutex
	children map[statefs.ID]map[statefs.ID]struct{} // of each parent that has not ended
	first    map[statefs.ID]awaited                 // of each child that waits, one of its parents
	named    map[statefs.ID][]statefs.ID            // of each live operation that comes after others, all of them, ended or not
}

// name notes all that a live operation comes after; none when it has ended, or is not to wait for them any more. They are kept until then:
// whatever state it is in, it may look how they have ended.
func (c *chains) name(child statefs.ID, parents []statefs.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(parents) == 0 {
		delete(c.named, child)
		return
	}
	if c.named == nil {
		c.named = make(map[statefs.ID][]statefs.ID)
	}
	c.named[child] = parents
}

// guard notes what must not be deleted because a live operation comes after it.
func (c *chains) guard(g *history.Guards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for child, parents := range c.named {
		g.ReferAfter(child, parents...)
	}
}

// awaited is a parent that has not ended, and since when it is waited for.
type awaited struct {
	parent statefs.ID
	since  time.Time
}

// waits notes that a child waits for a parent, and since when it is queued.
func (c *chains) waits(child, parent statefs.ID, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.children == nil {
		c.children, c.first = make(map[statefs.ID]map[statefs.ID]struct{}), make(map[statefs.ID]awaited)
	}
	if c.children[parent] == nil {
		c.children[parent] = make(map[statefs.ID]struct{})
	}
	c.children[parent][child] = struct{}{}
	c.first[child] = awaited{parent, since}
}

// free notes that a child waits for nobody any more.
func (c *chains) free(child statefs.ID, parents []statefs.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.first[child]; !known {
		return
	}
	delete(c.first, child)
	for _, parent := range parents {
		delete(c.children[parent], child)
		if len(c.children[parent]) == 0 {
			delete(c.children, parent)
		}
	}
}

// over returns the children of an operation that has ended.
func (c *chains) over(parent statefs.ID) []statefs.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	children := make([]statefs.ID, 0, len(c.children[parent]))
	for child := range c.children[parent] {
		children = append(children, child)
	}
	return children
}

// waitsFor returns a parent of a child that waits.
func (c *chains) waitsFor(child statefs.ID) (awaited, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	on, waits := c.first[child]
	return on, waits
}

// mostBehind bounds how many operations are looked at that one comes after.
const mostBehind = 100

// behind returns what an operation comes after, and what those come after, the nearest first.
func (c *chains) behind(child statefs.ID) []statefs.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []statefs.ID
	seen := map[statefs.ID]bool{}
	for at := -1; at < len(all) && len(all) < mostBehind; at++ {
		of := child
		if at >= 0 {
			of = all[at]
		}
		for _, parent := range c.named[of] {
			if !seen[parent] && len(all) < mostBehind {
				seen[parent] = true
				all = append(all, parent)
			}
		}
	}
	return all
}

// personBehind returns the operation behind another one that waits for a person, none when none does.
func (d *Daemon) personBehind(child statefs.ID) (none statefs.ID) {
	for _, id := range d.chains.behind(child) {
		if op := d.operation(id); op != nil && waitsForPerson(op.shown.Load()) {
			return id
		}
	}
	return none
}

// waitsForPerson tells of a state, as an operation shows it, whether somebody has to act.
func waitsForPerson(shown any) bool {
	return shown == statefs.FailedManual || shown == statefs.WaitingApproval
}

// wakeChildren has those looked at that come after an operation which has ended.
func (d *Daemon) wakeChildren(parent statefs.ID) {
	for _, child := range d.chains.over(parent) {
		d.looks.want(child)
	}
}

// comesAfter reports whether a queued operation waits for others. When one of them has ended otherwise than it must, nothing can come of
// that any more: then a person decides.
func (d *Daemon) comesAfter(op *operation) (waits bool, err error) {
	if len(op.rec.After) == 0 || op.rec.Starts > 0 {
		return false, nil
	}
	var met time.Time
	for _, parent := range op.rec.After {
		d.chains.waits(op.id(), parent, op.rec.Since()) // before it is looked at: its end comes before or after that
		ended, err := d.endOf(parent)
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
			d.chains.free(op.id(), op.rec.After)
			return true, d.cannotFollow(op, ended)
		}
	}
	d.chains.free(op.id(), op.rec.After)
	op.eligible = met
	return false, nil
}

// endOf returns the record of an operation that has ended, nil while it lives.
func (d *Daemon) endOf(id statefs.ID) (*statefs.Record, error) {
	if state, err := d.owner.State(id); state != statefs.Trailing && !errors.Is(err, statefs.ErrNotLive) {
		return nil, err // before the record: a marker that is gone means that the record is terminal
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
		return nil, fmt.Errorf("look how operation %s has ended: %w", id, err)
	}
	if !rec.Status.Terminal() {
		return nil, nil // its marker was removed by hand, and its end is to come
	}
	return rec, nil
}

// cannotFollow leaves an operation to a person because one that it comes after has not succeeded.
func (d *Daemon) cannotFollow(op *operation, parent *statefs.Record) error {
	what := string(parent.Status)
	if parent.Reason != "" {
		what += ", " + parent.Reason
	}
	message := fmt.Sprintf("operation %s, which it comes after, has not succeeded (%s)", parent.ID, what)
	if op.rec.Reason != reasonDependency { // on a full disk this happens again
		d.say(op, fmt.Sprintf("  ERROR: %s. 'jobdir retry %s' starts it all the same, 'jobdir cancel' ends it.", message, op.id()))
	}
	op.rec.Reason, op.rec.Error = reasonDependency, &statefs.Fault{Code: "dependency", Message: message}
	if err := d.moveByRecord(op, statefs.CauseDependency); err != nil {
		return err
	}
	return d.durable(op)
}
