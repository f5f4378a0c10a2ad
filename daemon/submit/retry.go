package submit

import (
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// maxPredecessors bounds how many predecessors of an operation are examined.
const maxPredecessors = 100

// FindDuplicate returns a live operation that is equal to an operation that waits for a person and
// prevents its restart; no record if there is none. (Equal submits ignore operations that wait for a person, so such a
// duplicate may exist.) onHit is the setting of the waiting operation's job. Operations that come after it,
// directly or not, do not count. Before [Intake.Ready], FindDuplicate finds nothing.
func (in *Intake) FindDuplicate(rec *statefs.Record, onHit catalog.OnHit) (none Outcome, err error) {
	if _, ok := hashPrefixOf(rec.RequestHash); !ok || onHit == catalog.HitOff || !notify.IsClosed(in.ready) {
		return none, nil
	}
	found, err := in.liveByHash(rec.RequestHash)
	if err != nil {
		return none, err
	}
	for _, o := range found {
		if o.Record.ID != rec.ID && !in.comesAfter(o.Record, rec.ID) {
			return o, nil
		}
	}
	return none, nil
}

// RestartUnlessDuplicate calls begin to restart an operation that waits for a person. If an equal operation
// is live, it returns that one instead; the outcome has no record if begin was called. No equal submit is
// decided at the same time.
func (in *Intake) RestartUnlessDuplicate(rec *statefs.Record, onHit catalog.OnHit,
	begin func() error,
) (other Outcome, err error) {
	s, ok := hashPrefixOf(rec.RequestHash)
	if ok && onHit != catalog.HitOff {
		for busy := in.claims.acquire([]hashPrefix{s}); busy != nil; busy = in.claims.acquire([]hashPrefix{s}) {
			<-busy // held by a submit, which waits only for the disk
		}
		defer in.claims.release([]hashPrefix{s})
		if other, err = in.FindDuplicate(rec, onHit); err != nil || other.Record != nil {
			return other, err
		}
	}
	return Outcome{}, begin()
}

// comesAfter reports whether an operation that has not started comes after another one, directly or not.
func (in *Intake) comesAfter(rec *statefs.Record, id statefs.ID) bool {
	if rec.Starts > 0 {
		return false
	}
	queue := slices.Clone(rec.After)
	for i := 0; i < len(queue); i++ {
		if queue[i] == id || i == maxPredecessors {
			return true
		}
		if parent, err := in.config.Tree.ReadRecord(queue[i]); err == nil && parent.Starts == 0 && !parent.Status.Terminal() {
			for _, further := range parent.After {
				if !slices.Contains(queue, further) {
					queue = append(queue, further)
				}
			}
		}
	}
	return false
}
