package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/statefs"
)

// reasonDependency is the reason of an operation that waits for a person because a parent has not
// succeeded.
const reasonDependency = "dependency"

// A child names its parents when it is submitted, and they exist by then, so there are no cycles. The
// table only tells which children to reconcile when a parent ends; the reconcile decides by the records.

// enqueueChildren enqueues the children that wait for an operation which has ended.
func (c *core) enqueueChildren(parent statefs.ID) {
	for _, child := range c.live.Children(parent) {
		c.reconcileQueue.enqueue(child)
	}
}

// viewParents sees how the parents of a queued operation have ended. It returns true if the operation waits for one, or
// is left to a person because one has not succeeded.
func (dc *decisions) viewParents(op *operation) (last bool, err error) {
	if len(op.rec.After) == 0 || op.rec.Starts > 0 {
		return false, nil
	}
	var met time.Time
	for i, parent := range op.rec.After {
		ended, err := dc.starts.readEnd(parent) // the table has the child already, so the end is not missed
		if err != nil {
			return true, err
		}
		x := seen{Observation: decide.ParentSeen{Live: true}, parent: ended}
		if ended == nil {
			dc.setAwaited(op, &op.rec.After[i])
		} else {
			x.Observation = decide.ParentSeen{Status: ended.Status, AnyEnd: op.rec.Require == statefs.RequireEnd}
			if ended.FinishedAt != nil && ended.FinishedAt.After(met) {
				met = *ended.FinishedAt
			}
		}
		if last, err := dc.judge(op, x); last || err != nil {
			return true, err
		}
	}
	dc.setAwaited(op, nil)
	op.eligibleAt = met
	return false, nil
}

// readEnd returns the record of an operation that has ended, or nil if it is live. For a record
// that is missing or cannot be read it returns a substitute with the reason.
func (s *starts) readEnd(id statefs.ID) (*statefs.Record, error) {
	if state, err := s.owner.State(id); state != statefs.Trailing && !errors.Is(err, statefs.ErrNotLive) {
		return nil, err // checked before the record: if the marker is gone, the record is terminal
	}
	rec, err := s.owner.ReadRecord(id)
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
func (s *starts) parentFailed(op *operation, x seen, answer decide.Answer) error {
	parent := x.parent
	s.setAwaited(op, nil)
	what := string(parent.Status)
	if parent.Reason != "" {
		what += ", " + parent.Reason
	}
	message := fmt.Sprintf("operation %s, which it comes after, has not succeeded (%s)", parent.ID, what)
	if op.rec.Reason != reasonDependency { // on a full disk this code runs again
		s.logLine(op, fmt.Sprintf("  ERROR: %s. 'jobdir retry %s' starts it all the same, 'jobdir cancel' ends it.", message,
			op.id()))
	}
	op.rec.Reason, op.rec.Error = reasonDependency, &statefs.Fault{Code: "dependency", Message: message}
	return s.transitionDurably(op, answer.Cause)
}
