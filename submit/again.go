package submit

import (
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// mostBehind bounds how many operations are looked at that one comes after.
const mostBehind = 100

// Equal returns the live operation that does the same as one that waits for a person, which an equal submit does not wait for, and that stands in
// the way when it is to start again; no record when none does. onHit is what the job of that one says. One that comes after it, or after one
// that does, is not in its way. While the intake is not ready the answer is none.
func (in *Intake) Equal(rec *statefs.Record, onHit catalog.OnHit) (none Outcome, err error) {
	select {
	case <-in.ready:
	default:
		return none, nil
	}
	if _, ok := sumOf(rec.RequestHash); !ok || onHit == catalog.HitOff {
		return none, nil
	}
	found, err := in.find(rec.RequestHash)
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

// Again has begin start an operation again that waits for a person, unless an equal one lives, which is returned then; no record when begin
// was called. No equal submit decides meanwhile.
func (in *Intake) Again(rec *statefs.Record, onHit catalog.OnHit, begin func() error) (other Outcome, err error) {
	s, ok := sumOf(rec.RequestHash)
	if ok && onHit != catalog.HitOff {
		for busy := in.claims.take([]sum{s}); busy != nil; busy = in.claims.take([]sum{s}) {
			<-busy // a submit: it waits for nobody but the disk
		}
		defer in.claims.giveBack([]sum{s})
		if other, err = in.Equal(rec, onHit); err != nil || other.Record != nil {
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
		if queue[i] == id || i == mostBehind {
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
